// The chunks of vectors that travel along a chain of ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "collectives/algorithm.hpp"

namespace pith {

// The chunk length c that minimises (n/c) alpha + (P-2) beta c for n bytes, at most the tuning's:
// the last rank waits until one chunk has passed all others.
inline std::size_t chain_chunk_bytes(std::size_t bytes, int ranks, const Tuning& tuning) {
  if (ranks <= 2) return tuning.chunk_bytes;
  constexpr std::size_t unit = 1024;
  const double best = std::sqrt(double(bytes) * tuning.start_bytes / double(ranks - 2));
  const std::size_t whole = std::max(static_cast<std::size_t>(best) / unit, std::size_t{1}) * unit;
  return std::min(tuning.chunk_bytes, whole);
}

}  // namespace pith
