// What SIMD and scalar forms of the error-bounded coding share: the layout of a block.
//
// A block of 128 values begins with a byte: `zeros`, all values are decoded to zero; `as_is`, they
// follow as float32; or the number of bits of a code, 1 to 24. Then, if the bound is relative, the
// step as a float32, and the codes: an integer k for k times the step, as 2k or -2k - 1, so that
// small magnitudes have small codes.
//
// Codes are cut into planes, from their lowest bits up: of eight bits each, then of four, two and
// one, as the number of bits has them. Byte j of a plane has the bits of codes j, j + n, j + 2n,
// ..., n the bytes of the plane, as in core/sparse/coding.hpp. The last block counts as filled up
// with zeros. As SZx [Yu et al., HPDC 2022] and cuSZp [Huang et al., SC 2023] code blocks, with a
// number of bits each, but without prediction from neighbours: those of gradients say nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/sparse/varying_coding.hpp"

namespace pith::kernels {

inline constexpr std::size_t bounded_block = VaryingCoding{}.block();

struct BoundedHead {
  static constexpr std::uint8_t zeros = 0;
  static constexpr std::uint8_t as_is = 0xff;
  static constexpr std::uint8_t most_bits = 24;
};

// Of `bits` bits of all codes of a block.
constexpr std::size_t plane_bytes(unsigned bits) { return bounded_block * bits / 8; }

constexpr bool sends_step(const VaryingCoding& coding) {
  return coding.relative <= std::numeric_limits<float>::max();
}
// From the head on, of codes with this many bits.
constexpr std::size_t coded_bytes(const VaryingCoding& coding, unsigned bits) {
  return 1 + (sends_step(coding) ? sizeof(float) : 0) + plane_bytes(bits);
}

// Twice the bound, less a part by which roundings of the arithmetic do not exceed the bound.
inline float step_of(float bound) {
  constexpr float twice = 2 - 2.0f / 256;
  return std::min(bound * twice, std::numeric_limits<float>::max());
}

// How the values of a block are coded.
struct BoundedPlan {
  enum class Way : std::uint8_t { zeros, as_is, steps };
  Way way = Way::as_is;
  float bound = 0;
  float step = 0;
  float factor = 0;  // what makes steps of values
};

// `largest`: the largest magnitude of the block, as bits.
inline BoundedPlan plan_of(const VaryingCoding& coding, std::uint32_t largest) {
  constexpr float greatest = std::numeric_limits<float>::max();
  constexpr float most_steps = 1 << (BoundedHead::most_bits - 2);
  const auto most = std::bit_cast<float>(largest);
  if (!(most <= greatest)) return {};
  BoundedPlan plan;
  plan.bound = most > 0 ? std::min(coding.absolute, coding.relative * most) : 0;
  if (most <= plan.bound || most == 0) return {.way = BoundedPlan::Way::zeros};
  plan.step = step_of(plan.bound);
  plan.factor = 1 / plan.step;
  const bool fits =
      plan.step >= std::numeric_limits<float>::min() && most * plan.factor <= most_steps;
  if (fits) plan.way = BoundedPlan::Way::steps;
  return plan;
}

// Calls plane(shift, bits) for the planes of codes of `bits` bits, `shift` the bits below.
template <class Plane>
void for_each_plane(unsigned bits, const Plane& plane) {
  int shift = 0;
  for (; bits >= 8; bits -= 8, shift += 8) plane(shift, 8u);
  for (const unsigned some : {4u, 2u, 1u}) {
    if ((bits & some) == 0) continue;
    plane(shift, some);
    shift += static_cast<int>(some);
  }
}

}  // namespace pith::kernels
