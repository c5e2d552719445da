// What ExDyna and its kin cost on ideal full-duplex links, beside the reading of gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "collectives/algorithm.hpp"

namespace pith {

struct ExdynaShape {
  int ranks = 1;
  std::size_t count = 0;
  double density = 0;
  double imbalance = 1;  // N max k_i / sum k_i: the largest message of indices
  double value_bytes = 4;
};

// Of the index code, at elements spread evenly; see kernels/index_code.hpp. From a quarter of them
// on a bitmap is shorter.
inline double bits_per_index(double density) {
  return std::min(2 + std::log2(1 / density), 1 / density);
}

// Seconds: indices to all, and the two halves of the sum of values. Every message of a phase is
// under way at once, so that ranks add bytes, and only (P-1)/P of them, but no latency.
inline double exdyna_cost(const ExdynaShape& shape, const LinkCost& link) {
  if (shape.ranks == 1) return 0;
  const double others = 1 - 1 / static_cast<double>(shape.ranks);
  const double elected = shape.density * static_cast<double>(shape.count);
  const double indices = shape.imbalance * elected * bits_per_index(shape.density) / 8;
  const double values = elected * shape.value_bytes;
  return 3 * link.alpha + others * (indices + 2 * values) * link.beta + values * link.gamma;
}

// DEFT's: before all of that, one rank tells the bins of all pieces.
inline double deft_cost(const ExdynaShape& shape, std::size_t pieces, const LinkCost& link) {
  const Shape bins{shape.ranks, pieces * sizeof(std::uint32_t), {}};
  return find_algorithm(Collective::broadcast, "binomial")->cost(bins, link) +
         exdyna_cost(shape, link);
}

}  // namespace pith
