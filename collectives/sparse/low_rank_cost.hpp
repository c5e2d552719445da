// Cost of an allreduce of low-rank factors, on ideal full-duplex links.
#pragma once

#include "collectives/algorithm.hpp"
#include "collectives/patterns.hpp"

namespace pith {

// Seconds of two dense allreduces, which both have 2 log2(P) messages, of `elements` float32
// together.
inline double low_rank_cost(std::size_t elements, int ranks, const LinkCost& link) {
  if (ranks == 1) return 0;
  const double others = double(ranks - 1) / ranks;
  const double bytes = sizeof(float) * double(elements);
  return 4 * ceil_log2(ranks) * link.alpha + 2 * others * bytes * (link.beta + link.gamma / 2);
}

}  // namespace pith
