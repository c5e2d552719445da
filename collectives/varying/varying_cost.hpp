// Cost of an allreduce of values coded to a length that depends on them, on ideal full-duplex
// links, by a guess of that length.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "collectives/sparse/coded_cost.hpp"
#include "core/sparse/varying_coding.hpp"

namespace pith {

// Bytes of an element. Of gradients' exponents two or three bits remain; errors that are bounded by
// a part of the largest magnitude take as many bits as that part has; about others nothing is known
// before.
inline double usual_bytes(const VaryingCoding& coding) {
  constexpr double lossless_bytes = 3.4;
  constexpr double unknown_bits = 8;
  constexpr double head_bits = 0.4;
  if (coding.kind == VaryingCoding::Kind::lossless) return lossless_bytes;
  const double relative = double{coding.relative};
  const bool is_known = std::isfinite(coding.relative);
  const double bits = is_known ? std::log2(1 / std::min(relative, 1.0)) + 1 : unknown_bits;
  return std::min((bits + head_bits) / 8, double{sizeof(float)});
}

// Seconds: 2 alpha + 2 (P-1)/P m beta, m the bytes of coded values, `bytes` of each element.
// Parcels overlap as in coded_cost.hpp.
inline double varying_cost(double bytes, std::size_t count, int ranks, const LinkCost& link) {
  if (ranks == 1 || count == 0) return 0;
  const auto half = [&](std::size_t elements) {
    return (ranks - 1) / double(ranks) * bytes * double(elements) * link.beta;
  };
  const std::size_t parcel = std::min(CodedShape::parcel(count), count);
  const std::size_t parcels = chunks_in(count, parcel);
  const auto later = static_cast<double>(std::min(parcels, CodedShape::strands) - 1);
  const auto rounds = static_cast<double>(chunks_in(parcels, CodedShape::strands));
  const double waits = std::max(link.alpha - later * half(parcel), 0.0);
  return std::max(link.alpha + waits + 2 * half(count), rounds * 2 * (link.alpha + half(parcel)));
}

}  // namespace pith
