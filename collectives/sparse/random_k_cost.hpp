// Cost of an allreduce of values at elements that all ranks know, on ideal full-duplex links,
// without reading gradients.
#pragma once

#include <cstddef>

#include "collectives/algorithm.hpp"

namespace pith {

// Seconds: 2 alpha + 2 (P-1)/P m beta, m bytes of values.
inline double random_k_cost(std::size_t bytes, int ranks, const LinkCost& link) {
  if (ranks == 1) return 0;
  const double others = double(ranks - 1) / ranks;
  return 2 * link.alpha + 2 * others * double(bytes) * link.beta;
}

}  // namespace pith
