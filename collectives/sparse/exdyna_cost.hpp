// What ExDyna and its kin cost on ideal full-duplex links, beside the reading of gradients.
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

// Of the index code, at elements spread evenly; see kernels/index_code.hpp. From a quarter of them
// on a bitmap is shorter.
inline double bits_per_index(double density) {
  return std::min(2 + std::log2(1 / density), 1 / density);
}

// Seconds: indices to all, and the two halves of the sum of values. Every message of a phase is
// under way at once, so that ranks add bytes, and only (P-1)/P of them, but no latency. In R rounds
// the phases overlap: what a port carries and the first alpha are the least; or else, where bytes
// are few, the first four sums at once, and those behind them, each 2 alpha.
inline double exclusive_cost(const ExdynaShape& shape, double last_head, const LinkCost& link) {
  constexpr int sums_at_once = 4;
  constexpr double head = 9;  // of a message: a count, what the list is, its block
  if (shape.ranks == 1) return 0;
  const double p = shape.ranks;
  const double elected = shape.density * static_cast<double>(shape.count);
  const double indices = shape.imbalance * elected * bits_per_index(shape.density) / 8;
  const double values = elected * shape.value_bits / 8;
  const double told = (p - 1) * (indices / p / shape.rounds + head) * link.beta;  // of a round
  const double half = (p - 1) / p * values * link.beta / shape.rounds;            // of its sum
  const double last = (p - 1) * last_head * link.beta;
  const double port = link.alpha + last + shape.rounds * (told + 2 * half);
  const double first = std::min(shape.rounds, sums_at_once);
  const double turns = std::ceil(double(shape.rounds) / sums_at_once);
  const double phases = 3 * link.alpha + last + told + 2 * half +
                        (first - 1) * std::max(told, half) + (turns - 1) * 2 * (link.alpha + half);
  return std::max(port, phases) + values * link.gamma;
}

// Of the quantile rule, whose last round tells how many elements there are of each level.
inline double exdyna_cost(const ExdynaShape& shape, const LinkCost& link) {
  return exclusive_cost(shape, sizeof(std::uint32_t) * MagnitudeLevels::size, link);
}

// DEFT's: before all of that, one rank tells the bins of all pieces.
inline double deft_cost(const ExdynaShape& shape, std::size_t pieces, const LinkCost& link) {
  const Shape bins{shape.ranks, pieces * sizeof(std::uint32_t), {}};
  return find_algorithm(Collective::broadcast, "binomial")->cost(bins, link) +
         exclusive_cost(shape, 0, link);
}

}  // namespace pith
