// Cost of a dense allreduce of values coded in blocks, on ideal full-duplex links, without reading
// gradients.
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/algorithm.hpp"
#include "collectives/patterns.hpp"
#include "core/sparse/coding.hpp"

namespace pith {

struct CodedShape {
  static constexpr std::size_t strands = 4;  // parcels on their way at once

  int ranks = 1;
  std::size_t count = 0;
  Coding coding;

  // Elements summed at once: so few that several parcels overlap, so many that a message is worth
  // its start.
  static std::size_t parcel(std::size_t all) {
    constexpr std::size_t least = std::size_t{1} << 17;
    constexpr std::size_t most = std::size_t{1} << 20;
    constexpr std::size_t parcels = 16;
    return std::clamp(chunks_in(all, parcels * least) * least, least, most);
  }
};

// Seconds: 2 alpha + 2 (P-1)/P m beta, m bytes of coded values. Of a call with several parcels the
// first halves of later ones hide the second alpha; or, where that is more, what the parcels of a
// strand take one after the other.
inline double coded_cost(const CodedShape& shape, const LinkCost& link) {
  if (shape.ranks == 1 || shape.count == 0) return 0;
  // Of the rank with the most blocks.
  const auto half = [&](std::size_t count) {
    const std::size_t block = shape.coding.block;
    const auto ranks = static_cast<std::size_t>(shape.ranks);
    const std::size_t own = chunks_in(chunks_in(count, block), ranks) * block;
    return (shape.ranks - 1) * static_cast<double>(shape.coding.bytes(std::min(own, count))) *
           link.beta;
  };
  const std::size_t parcel = std::min(CodedShape::parcel(shape.count), shape.count);
  const std::size_t parcels = chunks_in(shape.count, parcel);
  const auto later = static_cast<double>(std::min(parcels, CodedShape::strands) - 1);
  const auto rounds = static_cast<double>(chunks_in(parcels, CodedShape::strands));
  const double waits = std::max(link.alpha - later * half(parcel), 0.0);
  return std::max(link.alpha + waits + 2 * half(shape.count),
                  rounds * 2 * (link.alpha + half(parcel)));
}

}  // namespace pith
