// Cost of an allreduce of drawn atoms, on ideal full-duplex links.
#pragma once

#include "collectives/algorithm.hpp"
#include "collectives/patterns.hpp"

namespace pith {

// Seconds of a dense allreduce of the elements that are in no matrix, of 2 log2(P) messages, and of
// the atoms of every rank: their number in one message, and `atoms` float32 in another, to each of
// the others.
inline double atomo_cost(std::size_t elements, std::size_t atoms, int ranks, const LinkCost& link) {
  if (ranks == 1) return 0;
  const double others = ranks - 1;
  const double summed = sizeof(float) * double(elements);
  const double listed = sizeof(float) * double(atoms);
  return (2 * ceil_log2(ranks) + 2) * link.alpha +
         2 * others / ranks * summed * (link.beta + link.gamma / 2) + others * listed * link.beta;
}

}  // namespace pith
