#include "compress/exdyna_scheme.hpp"

#include "compress/scheme_keys.hpp"
#include "compress/state_bytes.hpp"

namespace pith {

extern const Scheme exdyna_scheme;

namespace {

constexpr std::array<std::string_view, 3> rule_words = {"quantile", "intended", "released"};
constexpr std::array<std::string_view, 2> partition_words = {"prefix", "neighbour"};
constexpr Key rule = keys::choice<0>("rule", rule_words);
constexpr auto exdyna_keys = keys::of_election(
    std::array{rule, keys::choice<1>("partition", partition_words), keys::reduction});
constexpr auto micro_keys = keys::of_election(std::array{rule, keys::reduction});

// The authors' rules default to the authors' cut.
void complete(Spec& spec, std::span<const std::string_view> keys) {
  if (rule_of(spec) == Rule::quantile) return;
  if (std::find(keys.begin(), keys.end(), "partition") != keys.end()) return;
  spec.choices[1] = static_cast<std::uint8_t>(Partition::neighbour);
}

// The authors elect one element of a partition that has none above the threshold.
Unelected unelected(const Spec& spec, int ranks) {
  return {.dummies = rule_of(spec) == Rule::quantile ? 0 : static_cast<std::size_t>(ranks)};
}

// Invariants that the code relies on: a checksum detects damage, but not invented states.
bool is_sound(const ExdynaThreshold::State& state) {
  const auto is_magnitude = [](double value) {
    return value >= 0 && value <= std::numeric_limits<float>::max();
  };
  return is_magnitude(state.lambda) && is_magnitude(state.last) && std::isfinite(state.drift);
}
bool are_means(std::span<const double> means) {
  return std::all_of(means.begin(), means.end(),
                     [](double mean) { return mean >= 0 && mean <= double(most_saved_elements); });
}
bool is_sound(const ExdynaPartition::State& state) {
  const std::size_t cuts = state.cuts.size();
  const std::size_t means = state.partition_means.size();
  return cuts >= 2 && cuts <= most_saved_ranks && (means == 0 || means == cuts - 1) &&
         std::is_sorted(state.cuts.begin(), state.cuts.end()) && are_means(state.partition_means) &&
         are_means(state.block_means);
}

// Empty before the first call.
void save_control(const SchemeState& state, StateWriter& out) {
  const ExdynaControl::State own = state.exdyna.state();
  if (own.partition.cuts.empty()) return;
  out.array(own.partition.cuts);
  out.array(own.partition.block_means);
  out.array(own.partition.partition_means);
  out.value(own.threshold.lambda);
  out.value(own.threshold.drift);
  out.value(own.threshold.last);
  out.value(own.threshold.measured);
}

bool load_control(SchemeState& state, const StateShape& shape, StateReader& in) {
  if (in.ended()) return true;
  ExdynaControl::State own;
  const bool whole = in.array(own.partition.cuts) && in.array(own.partition.block_means) &&
                     in.array(own.partition.partition_means);
  own.threshold.lambda = in.value<double>();
  own.threshold.drift = in.value<double>();
  own.threshold.last = in.value<double>();
  own.threshold.measured = in.value<std::uint32_t>();
  const bool is_shaped = shape.count > 0 && shape.count <= most_saved_elements;
  if (!whole || !in.good() || !is_shaped) return false;
  if (!is_sound(own.partition) || !is_sound(own.threshold)) return false;
  // The state covers the rank's slice if it keeps one.
  const std::size_t count = state.layout.count != 0 ? state.layout.count : shape.count;
  if (count > shape.count) return false;
  const std::vector<std::uint32_t>& cuts = own.partition.cuts;
  state.exdyna.restore(shape.spec, count, static_cast<int>(cuts.size()) - 1, own);
  return cuts.front() == 0 && cuts.back() == state.exdyna.partition().blocks();
}

constexpr std::array control_sections{StateSection{"exdyna", save_control, load_control}};

}  // namespace

constinit const Scheme exdyna_scheme{
    .name = "exdyna",
    .summary = "every rank elects in a part of its own, by one threshold",
    .electors = Electors::owners,
    .exchange = "exdyna",
    .keys = exdyna_keys,
    .density = 0.001,
    .complete = complete,
    .sections = control_sections,
    .checks = {.unelected = unelected}};

constinit const Scheme micro_scheme{.name = "micro",
                                    .summary = "exdyna with equal parts that stay",
                                    .electors = Electors::owners,
                                    .exchange = "exdyna",
                                    .keys = micro_keys,
                                    .density = 0.001,
                                    .choices = {0, static_cast<std::uint8_t>(Partition::slices)},
                                    .sections = control_sections,
                                    .checks = {.unelected = unelected}};

}  // namespace pith
