#include "answer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/hosts.hpp"
#include "compress/low_rank/elected_rows.hpp"
#include "compress/scheme.hpp"
#include "model/cheapest.hpp"
#include "model/nominal.hpp"
#include "settings/settings.hpp"

namespace pith_explain {

using namespace pith;

namespace {

std::vector<Candidate> dense_candidates(const Question& question, const Model& model,
                                        std::size_t bytes) {
  const Shape shape = model.shape(bytes);
  std::vector<Candidate> found;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != question.collective) continue;
    Candidate candidate;
    candidate.name = algorithm.name;
    candidate.exchange_s = mean_cost_on(question.link, algorithm, shape);
    candidate.timeouts_s = mean_timeout(algorithm, shape);
    if (!serves(algorithm, shape)) candidate.closed = why_not_serving(algorithm, shape.ranks);
    found.push_back(std::move(candidate));
  }
  return found;
}

// Ranks spread evenly, neighbours together.
Hosts hosts_of(const Question& question) {
  std::vector<int> names;
  names.reserve(static_cast<std::size_t>(question.ranks));
  for (int rank = 0; rank < question.ranks; ++rank) {
    names.push_back(static_cast<int>(std::int64_t{rank} * question.hosts / question.ranks));
  }
  return Hosts(std::span<const int>(names));
}

struct Bypass {
  bool dense = false;
  bool open = false;  // both ways are
  std::string why;
};

// As a compressed call decides (collectives/compressed.cpp).
Bypass bypass_of(const Question& question, const Model& model, std::size_t elements) {
  const Spec& spec = *question.compress;
  if (spec.chooses_scheme()) {
    const std::string why =
        fmt::format("auto begins with {}, and then goes by measured times and by what each sends",
                    name_of(spec.form));
    return {false, spec.may_bypass, why};
  }
  if (spec.scheme->exchange == "dense") return {true, false, "dense: the scheme sums all elements"};
  const Hosts hosts = hosts_of(question);
  const bool by_host = spec.by_host && !hosts.alone();
  if (by_host && hosts.count() == 1) {
    return {true, false, "dense: hierarchy=host, and all ranks are on one host"};
  }
  if (!by_host && !spec.sparse())
    return {false, false, "compressed: bypass is for schemes that elect"};
  if (spec.scheme->averages_parameters) {
    return {false, false, "compressed: the scheme averages parameters by gossip"};
  }
  if (!spec.may_bypass) return {false, false, "compressed: bypass=never"};
  const std::string link =
      model.views() ? "shared memory" : fmt::format("{:.3g} Gbit/s", 8e-9 / model.link().beta);
  const std::string why = fmt::format(": bypass=auto takes that for faster on {}{}", link,
                                      by_host ? "" : " at first, and then goes by measured times");
  const bool dense = model.is_faster_dense(spec, elements, by_host ? &hosts : nullptr);
  return {dense, true, (dense ? "dense" : "compressed") + why};
}

void add_compressed(const Question& question, const Model& model, Answer& answer,
                    std::string& takes) {
  answer.elements = question.bytes / size_of(DType::f32);
  const Spec& spec = *question.compress;
  if (spec.sparse() && spec.form == Form::none && answer.elements > 0) {
    const std::size_t sketch = sketch_of(spec);
    answer.elected = sketch == 0
                         ? elected_of(spec.density, answer.elements)
                         : square_row_counts(answer.elements, sketch, spec.density).elements;
  }
  const Bypass bypass = bypass_of(question, model, answer.elements);
  answer.bypass = bypass.why;
  for (Candidate& dense : answer.candidates) {
    dense.work_s =
        static_cast<double>(answer.elements) * (nominal::select_element + nominal::write_element);
    if (!bypass.dense && !bypass.open && dense.open()) dense.closed = bypass.why;
  }
  std::string form;
  for (Candidate& candidate : compressed_forms(question, model, form)) {
    if (bypass.dense && !bypass.open) candidate.closed = bypass.why;
    answer.candidates.push_back(std::move(candidate));
  }
  if (!bypass.dense) takes = form;
}

void add_coded(const Question& question, const Model& model, Answer& answer, std::string& takes) {
  answer.elements = question.bytes / size_of(DType::f32);
  if (answer.elements == 0) {
    answer.bypass = "dense: there is no element";
    return;
  }
  answer.bypass = "compressed: calls that code every value are never made dense";
  for (Candidate& dense : answer.candidates) {
    if (dense.open()) dense.closed = answer.bypass;
  }
  for (Candidate& candidate : coded_moves(question, model, answer.sent, takes)) {
    answer.candidates.push_back(std::move(candidate));
  }
}

}  // namespace

std::string why_not_serving(const Algorithm& algorithm, int ranks) {
  if (ranks > algorithm.ranks_max) {
    return fmt::format("serves at most {} ranks", algorithm.ranks_max);
  }
  if (algorithm.needs_views) return "needs memory that ranks share";
  if (algorithm.needs_hosts == HostNeed::even)
    return "needs hosts with several ranks, each as many";
  if (algorithm.needs_hosts == HostNeed::several) return "needs hosts with several ranks";
  return "sends the vector as one message, which is too long";
}

double Answer::regret() const {
  const double least = cheapest().seconds();
  return least > 0 ? takes().seconds() / least - 1 : 0;
}

Expected<std::unique_ptr<Model>> model_of(const Question& question) {
  const Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  auto model = std::make_unique<Model>(*settings, question.ranks);
  if (Error error = model->force(settings->algo)) return error;
  model->set_views(question.views);
  model->set_oversubscribed(question.oversubscribed);
  const int evenly = (question.ranks + question.hosts - 1) / question.hosts;
  model->set_hosts(question.hosts, question.ranks_a_host > 0 ? question.ranks_a_host : evenly);
  model->set_devices(question.devices);
  model->set_round_trip(2 * question.link.alpha);
  return model;
}

Answer answer(const Question& question, const Model& model) {
  Answer found;
  const std::size_t bytes = question.collective == Collective::barrier ? 0 : question.bytes;
  found.candidates = dense_candidates(question, model, bytes);
  const Algorithm& dense = model.algorithm(question.collective, bytes);
  found.forced = model.is_forced(question.collective);
  std::string takes(dense.name);
  if (question.compress) {
    const bool moves = has_coded_form(question.collective);
    (moves ? add_coded : add_compressed)(question, model, found, takes);
  }
  std::stable_sort(found.candidates.begin(), found.candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     if (a.open() != b.open()) return a.open();
                     return a.seconds() < b.seconds();
                   });
  const auto taken = std::find_if(found.candidates.begin(), found.candidates.end(),
                                  [&](const Candidate& one) { return one.name == takes; });
  found.taken = static_cast<std::size_t>(taken - found.candidates.begin());
  return found;
}

}  // namespace pith_explain
