#include "compress/low_rank/stated_matrices.hpp"
#include "compress/scheme_keys.hpp"
#include "compress/state_bytes.hpp"

namespace pith {

extern const Scheme arc_topk_scheme;

namespace {

constexpr std::size_t most_sketch = 32;
constexpr Key sketch_key{
    .name = "sketch",
    .get = [](const Spec& spec) -> std::uint64_t { return spec.choices[0]; },
    .set = [](Spec& spec,
              std::uint64_t columns) { spec.choices[0] = static_cast<std::uint8_t>(columns); },
    .kind = Key::Kind::integer,
    .least = 1,
    .most = most_sketch,
    .expected = "1 to 32"};
// No hierarchy: slices of a vector would cut rows.
constexpr std::array arc_topk_keys{keys::density,   keys::objective, keys::weight,   keys::quantise,
                                   sketch_key,      keys::values,    keys::feedback, keys::bypass,
                                   keys::nonfinite, keys::seed};

// Empty before the shape is known.
void save_matrices(const SchemeState& state, StateWriter& out) {
  if (!state.low_rank.layout) return;
  const auto matrices = state.low_rank.layout->matrices();
  out.array(std::vector(matrices.begin(), matrices.end()));
}

bool load_matrices(SchemeState& state, const StateShape& shape, StateReader& in) {
  if (in.ended()) return true;
  std::vector<MatrixShape> matrices;
  if (!in.array(matrices) || !elements_of(matrices)) return false;
  state.low_rank.layout = std::make_shared<LowRankLayout>(matrices, layout_rank_of(shape.spec));
  return true;
}

constexpr std::array arc_topk_sections{StateSection{"matrices", save_matrices, load_matrices}};

}  // namespace

// [Chen et al., "An All-Reduce Compatible Top-K Compressor for Communication-Efficient Distributed
// Learning", arXiv 2510.26709].
constinit const Scheme arc_topk_scheme{
    .name = "arc-topk",
    .summary = "rows of matrices, by a sketch of them that all ranks sum, without indices",
    .electors = Electors::all_alike,
    .exchange = "arc-topk",
    .keys = arc_topk_keys,
    .density = 0.01,
    .choices = {4},
    .rank = [](const Spec& spec) -> std::size_t { return spec.choices[0]; },
    .sections = arc_topk_sections};

}  // namespace pith
