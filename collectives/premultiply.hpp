// Sums whose inputs are multiplied by a factor first, by whatever algorithm sums.
#pragma once

#include <algorithm>

#include "collectives/algorithm.hpp"

namespace pith {

// Bytes of scratch that scaled inputs take: chunks enough for all lanes of every block, as far as
// a rank's scratch should go.
constexpr std::size_t premultiply_room(const Tuning& tuning, std::size_t ranks) {
  constexpr std::size_t most = std::size_t{4} << 20;
  return std::min(most, static_cast<std::size_t>(tuning.lanes) * ranks * tuning.chunk_bytes);
}

// Floats whose exponent has few bits leave their range as sums where their mean is well within:
// of those an average's inputs are scaled by a power of two first, which loses bits of the smallest
// numbers only. Leaves other calls as they are.
void scale_average(CollectiveArgs& args, int ranks);

// Scales the inputs, each rounded to the type once, and hands them to the algorithm. Where recv
// cannot hold them they go through scratch, piece by piece.
Task<Error> run_premultiplied(Call& call, CollectiveArgs args, const Algorithm& algorithm);

}  // namespace pith
