// Cost of hierarchy=host on ideal full-duplex links, without reading gradients.
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/algorithm.hpp"

namespace pith {

struct ByHostShape {
  int ranks = 1;  // of the largest host
  int slices = 1;
  std::size_t count = 0;
  double pairs = 0;     // of the result, in all slices
  double exchange = 0;  // seconds that the scheme takes between hosts for one slice
};

// Seconds: every owner receives its slice from the other ranks of its host by messages, and sums
// it; the scheme runs; every owner sends its pairs to the others of its host. Over views the first
// part costs gamma alone. The largest host sets the pace.
inline double by_host_cost(const ByHostShape& shape, const LinkCost& inside, bool views) {
  const double others = shape.ranks - 1;
  const double slice = 4 * static_cast<double>(shape.count) / shape.slices;
  const bool all_own = shape.ranks == shape.slices;  // else some rank owns none, and gives all
  const double giving = all_own ? others * slice : 4 * static_cast<double>(shape.count);
  const double wire = views ? 0 : std::max(others * slice, giving) * inside.beta;
  const double told = 8 * shape.pairs * inside.beta;
  return (others > 0 ? 2 * inside.alpha : 0) + wire + others * slice * inside.gamma +
         others * told / shape.slices + shape.exchange;
}

}  // namespace pith
