// The cost functions of compressed calls, for a spec.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "answer.hpp"
#include "collectives/lists/parcels.hpp"
#include "collectives/sparse/by_host_cost.hpp"
#include "collectives/sparse/coded_cost.hpp"
#include "collectives/sparse/exclusive_election.hpp"
#include "collectives/sparse/exdyna_cost.hpp"
#include "collectives/sparse/factors/atomo_cost.hpp"
#include "collectives/sparse/low_rank_cost.hpp"
#include "collectives/sparse/paper_costs.hpp"
#include "collectives/sparse/random_k_cost.hpp"
#include "collectives/sparse/sketched/arc_topk_cost.hpp"
#include "collectives/sparse/topk_cost.hpp"
#include "collectives/sparse/whole/choco_cost.hpp"
#include "collectives/sparse/whole/gtopk_cost.hpp"
#include "collectives/sparse/whole/kept_sums.hpp"
#include "collectives/varying/varying_cost.hpp"
#include "compress/ar_topk_scheme.hpp"
#include "compress/deft/plan.hpp"
#include "compress/density_key.hpp"
#include "compress/exdyna_scheme.hpp"
#include "compress/gossip/choco_scheme.hpp"
#include "compress/kept_sums/kept_sums_scheme.hpp"
#include "compress/low_rank/given_matrices.hpp"
#include "compress/topk_scheme.hpp"
#include "model/compressed_cost.hpp"
#include "model/nominal.hpp"

namespace pith_explain {

using namespace pith;

namespace {

// An exchange among ranks that each hold the whole vector.
struct Exchanging {
  const Spec& spec;
  int ranks = 1;
  std::size_t count = 0;
  std::size_t chunk_bytes = 0;
  bool views = false;
  LinkCost link;

  double value_bits() const {
    const auto coding = list_coding_of(spec);
    if (!coding) return 8 * static_cast<double>(size_of(spec.values));
    return 8 * static_cast<double>(coding->bytes(coding->block)) / coding->block;
  }
  std::size_t pairs() const { return count == 0 ? 0 : elected_of(spec.density, count); }
  // Messages of a list while the vector is being read, and of what is left then.
  int parcels() const { return static_cast<int>(chunks_in(count, parcel())); }
  int tails() const {
    return parcels() > 1 ? static_cast<int>(chunks_in(count, tail_elements(count, parcel()))) : 0;
  }

 private:
  std::size_t parcel() const { return parcel_elements(count, spec.density, chunk_bytes); }
};

struct Forms {
  std::vector<Candidate> all;
  std::string takes;

  void add(const std::string& name, double seconds, std::string closed = "") {
    Candidate form;
    form.name = name;
    form.compressed = true;
    form.exchange_s = seconds;
    form.closed = std::move(closed);
    all.push_back(std::move(form));
  }
};

// --- top-k: lists of all ranks, which are taken to elect different elements ---

std::string topk_form(std::string_view exchange) {
  return fmt::format("topk:exchange={}", exchange);
}

std::string taken_topk(const Exchanging& e) {
  const Exchange exchange = exchange_of(e.spec);
  const bool sums = !list_coding_of(e.spec);
  if (sums && exchange == Exchange::split) return topk_form("split");
  if (sums && exchange == Exchange::recursive_doubling && e.spec.values == DType::f32) {
    return topk_form("recursive-doubling");
  }
  return topk_form(goes_round_ring(e.spec, e.ranks, e.pairs(), e.views) ? "ring" : "direct");
}

Forms topk_forms(const Exchanging& e) {
  TopkShape shape{.ranks = e.ranks, .count = e.count};
  shape.density = e.spec.density;
  shape.value_bits = e.value_bits();
  shape.messages = std::max(1, e.parcels() + e.tails());
  TopkShape whole = shape;  // sums of lists begin when a list is complete
  whole.messages = 1;
  Forms forms;
  forms.takes = taken_topk(e);
  const bool chooses = exchange_of(e.spec) == Exchange::automatic;
  const auto add = [&](std::string_view exchange, double seconds, bool by_itself) {
    const bool open = forms.takes == topk_form(exchange) || (chooses && by_itself);
    forms.add(topk_form(exchange), seconds, open ? "" : fmt::format("needs exchange={}", exchange));
  };
  add("direct", topk_direct_cost(shape, e.link), true);
  if (e.ranks > 2) add("ring", topk_ring_cost(shape, e.link), true);
  if (list_coding_of(e.spec)) return forms;
  add("split", topk_split_cost(whole, e.link), false);
  if (e.spec.values == DType::f32) {
    add("recursive-doubling", topk_recursive_doubling_cost(whole, e.link), false);
  }
  return forms;
}

// --- AR-Topk: one rank's list ---

SparseShape ar_topk_shape(const Exchanging& e) {
  SparseShape shape;
  shape.ranks = e.ranks;
  shape.pairs = static_cast<double>(e.pairs());
  shape.index_bits = bits_per_index(e.spec.density);
  shape.value_bits = e.value_bits();
  shape.parcels = std::max(1, e.parcels());
  shape.tails = e.tails();
  shape.by_vote = election_of(e.spec) == Election::variance;
  return shape;
}

Forms ar_topk_forms(const Exchanging& e) {
  const SparseShape shape = ar_topk_shape(e);
  const bool narrow = e.spec.values != DType::f32;  // such values are summed directly
  const Reduction reduction = narrow ? Reduction::direct : e.spec.reduction;
  Forms forms;
  const auto add = [&](std::string_view word, Reduction one, double seconds) {
    const std::string name = fmt::format("ar-topk:reduction={}", word);
    if (one == reduction) forms.takes = name;
    forms.add(name, seconds, one == reduction ? "" : fmt::format("needs reduction={}", word));
  };
  add("direct", Reduction::direct, ar_topk_cost(shape, e.link.alpha, e.link.beta));
  if (narrow) return forms;
  add("ring", Reduction::ring, paper_art_ring_cost(shape, e.link.alpha, e.link.beta));
  add("tree", Reduction::tree, paper_art_tree_cost(shape, e.link.alpha, e.link.beta));
  return forms;
}

// --- the others, with one form each ---

double kept_seconds(const Exchanging& e) {
  TopkShape shape{.ranks = e.ranks, .count = e.count, .density = e.spec.density};
  shape.value_bits = e.value_bits();
  const bool agrees = keep_of(e.spec) == Keep::by_threshold;
  return kept_sums_cost(shape, agrees ? sizeof(ShareSummary) : 0, e.link);
}

double exclusive_seconds(const Exchanging& e) {
  ExdynaShape shape{.ranks = e.ranks, .count = e.count, .density = e.spec.density};
  shape.value_bits = e.value_bits();
  if (e.spec.scheme->exchange == "deft") {
    const auto ranks = static_cast<std::size_t>(e.ranks);
    return deft_cost(shape, deft_pieces(e.count, e.count, ranks), e.link);
  }
  if (rule_of(e.spec) != Rule::quantile) return exclusive_cost(shape, 0, e.link);
  const auto ranks = static_cast<std::size_t>(e.ranks);
  shape.rounds = static_cast<int>(exclusive_rounds(e.count, 1, ranks, e.chunk_bytes, e.views));
  return exdyna_cost(shape, e.link);
}

Forms forms_of(const Exchanging& e) {
  const std::string_view exchange = exchange_name(e.spec);
  if (exchange == "topk") return topk_forms(e);
  if (exchange == "ar-topk") return ar_topk_forms(e);
  Forms forms;
  if (exchange == "dense") return forms;
  forms.takes = e.spec.form == Form::none ? e.spec.scheme->name : name_of(e.spec.form);
  if (const auto coding = coding_of(e.spec)) {
    forms.add(forms.takes, coded_cost({e.ranks, e.count, *coding}, e.link));
  } else if (e.spec.scheme->varying) {
    const VaryingCoding varying = e.spec.scheme->varying(e.spec);
    forms.add(forms.takes, varying_cost(usual_bytes(varying), e.count, e.ranks, e.link));
  } else if (rank_of(e.spec) > 0) {
    const LowRankCounts counts = unstated_counts(e.spec, e.count);
    forms.add(forms.takes, draws_factors(e.spec)
                               ? atomo_cost(counts.elements, counts.factors, e.ranks, e.link)
                               : low_rank_cost(counts.all(), e.ranks, e.link));
  } else if (e.spec.scheme->averages_parameters) {
    TopkShape shape{.ranks = e.ranks, .count = e.count, .density = e.spec.density};
    shape.value_bits = e.value_bits();
    forms.add(forms.takes, choco_cost(shape, forecast_degree(e.spec, e.ranks), e.link));
  } else if (e.spec.scheme->electors == Electors::each_then_owners) {
    forms.add(forms.takes, kept_seconds(e));
  } else if (e.spec.scheme->electors == Electors::each_then_pairs) {
    TopkShape shape{.ranks = e.ranks, .count = e.count, .density = e.spec.density};
    shape.value_bits = e.value_bits();
    forms.add(forms.takes, gtopk_cost(shape, e.link));
  } else if (gathers_lists(e.spec)) {
    TopkShape shape{.ranks = e.ranks, .count = e.count, .density = e.spec.density};
    shape.value_bits = e.value_bits();
    forms.add(forms.takes, topk_direct_cost(shape, e.link));
  } else if (const std::size_t sketch = sketch_of(e.spec)) {
    const RowCounts rows = square_row_counts(e.count, sketch, e.spec.density);
    forms.add(forms.takes, arc_topk_cost(rows, size_of(e.spec.values), e.ranks, e.link));
  } else if (e.spec.scheme->electors == Electors::all_alike) {
    forms.add(forms.takes, random_k_cost(e.pairs() * size_of(e.spec.values), e.ranks, e.link));
  } else {
    forms.add(forms.takes, exclusive_seconds(e));
  }
  return forms;
}

// hierarchy=host: the exchange is that of hosts, for each slice of the vector. Inside a host memory
// is shared.
void put_inside_hosts(const Question& question, const Exchanging& e, Forms& forms) {
  const int most = (question.ranks + question.hosts - 1) / question.hosts;
  const int slices = question.ranks / question.hosts;
  const bool lists = gathers_lists(e.spec);
  const double found = static_cast<double>(e.pairs()) * (lists ? question.hosts : 1) * slices;
  const std::size_t count = question.bytes / size_of(DType::f32);
  for (Candidate& form : forms.all) {
    const ByHostShape shape{most, slices, count, found, form.exchange_s * slices};
    form.exchange_s = by_host_cost(shape, nominal::memory, true);
  }
}

// Of one scheme.
std::vector<Candidate> forms_of_scheme(const Question& question, const Spec& spec,
                                       const Model& model, std::string& takes) {
  const std::size_t all = question.bytes / size_of(DType::f32);
  Exchanging e{spec, question.ranks, all, model.tuning().chunk_bytes, model.views(), question.link};
  const bool by_host = spec.by_host && question.hosts > 1 && question.ranks > question.hosts;
  if (by_host) {
    e.ranks = question.hosts;
    e.count = chunks_in(all, static_cast<std::size_t>(question.ranks / question.hosts));
    e.views = false;
  }
  Forms forms = forms_of(e);
  if (by_host) put_inside_hosts(question, e, forms);
  const double work_s = compressed_cost(spec, spec.density, all, e.ranks).work_s;
  for (Candidate& form : forms.all) form.work_s = work_s;
  takes = forms.takes;
  return std::move(forms.all);
}

}  // namespace

// Of `auto` those of all schemes that it allows, at the density with which they would begin.
std::vector<Candidate> compressed_forms(const Question& question, const Model& model,
                                        std::string& takes) {
  const Spec& spec = *question.compress;
  if (!spec.chooses_scheme()) return forms_of_scheme(question, spec, model, takes);
  std::vector<Candidate> all;
  for (const Form form : all_forms) {
    if (!spec.may_take(form)) continue;
    std::string own;
    auto found = forms_of_scheme(question, beginning_in(spec, form), model, own);
    std::ranges::move(found, std::back_inserter(all));
    if (form == spec.form) takes = own;
  }
  return all;
}

}  // namespace pith_explain
