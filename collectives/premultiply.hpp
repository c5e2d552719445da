// Reductions whose inputs are multiplied by a factor first, with any algorithm.
#pragma once

#include <algorithm>

#include "collectives/algorithm.hpp"

namespace pith {

// Bytes of scratch for scaled inputs: enough chunks for all lanes of every block, up to what a
// rank's scratch should take.
constexpr std::size_t premultiply_room(const Tuning& tuning, std::size_t ranks) {
  constexpr std::size_t most = std::size_t{4} << 20;
  return std::min(most, static_cast<std::size_t>(tuning.lanes) * ranks * tuning.chunk_bytes);
}

// Whether the average is of floats with few exponent bits, which scale_average() scales.
bool is_scaled_average(const CollectiveArgs& args, int ranks);

// For averages of floats with few exponent bits, where the sum may overflow although the mean does
// not: scales the inputs by a power of two first, which loses bits of the smallest numbers only.
// Leaves other calls as they are.
void scale_average(CollectiveArgs& args, int ranks);

// Scales the inputs, rounding each once to the type, and runs the algorithm on them. If recv cannot
// hold the scaled inputs they go through scratch, some columns of every block at a time.
Task<Error> run_premultiplied(Call& call, CollectiveArgs args, const Algorithm& algorithm);

}  // namespace pith
