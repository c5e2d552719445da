#include "compress/ar_topk_scheme.hpp"

#include "compress/scheme_keys.hpp"
#include "compress/state_bytes.hpp"
#include "compress/thresholds/threshold_keys.hpp"

namespace pith {

extern const Scheme ar_topk_scheme;
extern const Scheme clt_k_scheme;

namespace {

constexpr std::array<std::string_view, 3> election_words = {"staleness", "variance",
                                                            "variance-lagged"};
constexpr std::array<std::string_view, 2> score_words = {"compressed", "raw"};
constexpr auto ar_topk_keys =
    keys::of_election(std::array{keys::choice<0>("election", election_words),
                                 keys::choice<1>("score", score_words), keys::reduction});

void save_succession(const SchemeState& state, StateWriter& out) {
  const Succession::State& own = state.succession.state();
  out.value(own.next);
  out.array(own.waited);
}

bool load_succession(SchemeState& state, const StateShape&, StateReader& in) {
  Succession::State own;
  own.next = in.value<int>();
  if (!in.array(own.waited) || own.waited.size() > most_saved_ranks) return false;
  const auto ranks = static_cast<int>(own.waited.size());
  if (own.next < 0 || own.next > std::max(ranks - 1, 0)) return false;
  state.succession.restore(own);
  return true;
}

// Whether the leader is plausible; any leader is accepted for elections that cannot be recomputed.
// The tolerance covers a different order of summation.
bool may_lead(const Spec& spec, std::uint64_t step, std::span<const double> squares,
              std::size_t leader) {
  constexpr double equal = 1 - 1e-6;
  if (leader >= squares.size()) return false;
  if (election_of(spec) == Election::staleness) return leader == step % squares.size();
  const bool by_squares =
      election_of(spec) == Election::variance && score_kind_of(spec) == Score::compressed;
  return !by_squares || squares[leader] >= equal * *std::ranges::max_element(squares);
}

float beta_of(const Spec& spec) { return static_cast<float>(spec.numbers[0]); }
constexpr std::array clt_k_keys{
    keys::fixed_density, keys::number<0>("beta", 0, 1, "more than 0 and at most 1"),
    keys::reduction,     keys::values,
    keys::bypass,        keys::nonfinite};
constexpr std::array clt_k_sections{forecast_section};

constexpr std::array ar_topk_sections{forecast_section,
                                      StateSection{"raw norm", save_plain<&SchemeState::raw_norm>,
                                                   load_plain<&SchemeState::raw_norm>},
                                      StateSection{"succession", save_succession, load_succession}};

}  // namespace

constinit const Scheme ar_topk_scheme{
    .name = "ar-topk",
    .summary = "one rank's k largest, the values of all ranks there",
    .electors = Electors::leader,
    .exchange = "ar-topk",
    .keys = ar_topk_keys,
    .density = 0.01,
    .sections = ar_topk_sections,
    .checks = {.may_lead = may_lead}};

// Cyclic local top-k of ScaleCom [Chen et al., NeurIPS 2020]: AR-Topk whose leaders take turns, and
// a filter of residuals.
constinit const Scheme clt_k_scheme{
    .name = "clt-k",
    .summary = "ranks in turn elect their k largest for all, with a filter of residuals",
    .electors = Electors::leader,
    .exchange = "ar-topk",
    .keys = clt_k_keys,
    .density = 0.01,
    .numbers = {1},
    .low_pass = beta_of,
    .sections = clt_k_sections,
    .checks = {.may_lead = may_lead}};

}  // namespace pith
