// Cost of a dense allreduce of bfloat16 values on ideal full-duplex links, without reading
// gradients.
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/algorithm.hpp"

namespace pith {

struct Bf16Shape {
  static constexpr std::size_t parcel = std::size_t{1} << 20;  // elements that are summed at once

  int ranks = 1;
  std::size_t count = 0;

  double bytes() const { return 2 * static_cast<double>(count); }
  double parcels() const {
    const std::size_t whole = (count + parcel - 1) / parcel;
    return static_cast<double>(whole);
  }
};

// Seconds: parcels 2 alpha + 2 (P-1)/P m beta, one parcel after the other, see value_sum.hpp.
inline double bf16_cost(const Bf16Shape& shape, const LinkCost& link) {
  if (shape.ranks == 1) return 0;
  const double others = 1 - 1 / static_cast<double>(shape.ranks);
  return shape.parcels() * 2 * link.alpha + 2 * others * shape.bytes() * link.beta +
         shape.bytes() * link.gamma;
}

}  // namespace pith
