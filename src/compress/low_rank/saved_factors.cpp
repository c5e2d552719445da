#include <algorithm>

#include "compress/low_rank/factor_keys.hpp"
#include "compress/low_rank/given_matrices.hpp"
#include "compress/low_rank/stated_matrices.hpp"
#include "compress/state_bytes.hpp"

namespace pith {

void save_factors(const SchemeState& state, StateWriter& out) {
  const LowRankState& own = state.low_rank;
  if (!own.layout) return;
  const auto matrices = own.layout->matrices();
  out.array(std::vector(matrices.begin(), matrices.end()));
  out.array(own.right);
}

bool load_factors(SchemeState& state, const StateShape& shape, StateReader& in) {
  if (in.ended()) return true;
  std::vector<MatrixShape> matrices;
  LowRankState own;
  if (!in.array(matrices) || !in.array(own.right)) return false;
  if (!elements_of(matrices)) return false;
  own.layout = std::make_shared<LowRankLayout>(stated_layout(shape.spec, matrices));
  if (!std::ranges::equal(own.layout->matrices(), matrices)) return false;  // too large ones
  const bool keeps = rank_of(shape.spec) > 0 && shape.spec.feedback;
  const std::size_t kept = keeps ? own.layout->right_count() : 0;
  if (!own.right.empty() && own.right.size() != kept) return false;
  state.low_rank = std::move(own);
  return std::ranges::all_of(state.low_rank.right, [](float x) { return std::fabs(x) <= 2; });
}

}  // namespace pith
