// Cost of ExDyna, MiCRO and DEFT on ideal full-duplex links, without reading gradients.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "collectives/algorithm.hpp"
#include "compress/exdyna_threshold.hpp"

namespace pith {

struct ExdynaShape {
  int ranks = 1;
  std::size_t count = 0;
  double density = 0;
  double imbalance = 1;  // N max k_i / sum k_i: the largest message of indices
  double value_bits = 32;
  int rounds = 1;
};

// Bits of an index in the index code (kernels/index_code.hpp), for elements that are spread evenly.
// From a density of a quarter on a bitmap is shorter.
inline double bits_per_index(double density) {
  return std::min(2 + std::log2(1 / density), 1 / density);
}

// Seconds: indices to all ranks, and the two halves of the sum of values. All messages of a phase
// are in flight at once, so that ranks add bytes, and only (P-1)/P of them, but no latency. R
// rounds overlap their phases. They take at least what a port carries and the first alpha; or,
// where bytes are few, the first four sums, which run at once, and those after them, at 2 alpha
// each.
inline double exclusive_cost(const ExdynaShape& shape, double last_head, const LinkCost& link) {
  constexpr int sums_at_once = 4;
  constexpr double head = 9;  // bytes of a message: a count, the kind of list, its block
  if (shape.ranks == 1) return 0;
  const double p = shape.ranks;
  const double elected = shape.density * static_cast<double>(shape.count);
  const double indices = shape.imbalance * elected * bits_per_index(shape.density) / 8;
  const double values = elected * shape.value_bits / 8;
  const double told = (p - 1) * (indices / p / shape.rounds + head) * link.beta;  // a round's
  const double half = (p - 1) / p * values * link.beta / shape.rounds;            // half of its sum
  const double last = (p - 1) * last_head * link.beta;
  const double port = link.alpha + last + shape.rounds * (told + 2 * half);
  const double first = std::min(shape.rounds, sums_at_once);
  const double turns = std::ceil(double(shape.rounds) / sums_at_once);
  const double phases = 3 * link.alpha + last + told + 2 * half +
                        (first - 1) * std::max(told, half) + (turns - 1) * 2 * (link.alpha + half);
  return std::max(port, phases) + values * link.gamma;
}

// With the quantile rule, whose last round also has the number of elements of each level.
inline double exdyna_cost(const ExdynaShape& shape, const LinkCost& link) {
  return exclusive_cost(shape, sizeof(std::uint32_t) * MagnitudeLevels::size, link);
}

// DEFT: before all of that, one rank broadcasts the bins of all pieces.
inline double deft_cost(const ExdynaShape& shape, std::size_t pieces, const LinkCost& link) {
  const Shape bins{shape.ranks, pieces * sizeof(std::uint32_t), {}};
  return find_algorithm(Collective::broadcast, "binomial")->cost(bins, link) +
         exclusive_cost(shape, 0, link);
}

}  // namespace pith
