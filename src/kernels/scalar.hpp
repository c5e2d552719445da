// The scalar twins of the kernels, one element at a time, written for reading: they define what the
// SIMD kernels must compute, bit for bit.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/dtype.hpp"
#include "kernels/formats.hpp"

namespace pith::kernels::scalar {

// Exact, as float32 contains every narrower format.
template <class Format>
float decode(typename Format::Bits code) {
  constexpr int sign_bit = 8 * sizeof(code) - 1;
  const int magnitude = code & ((1 << sign_bit) - 1);
  const float sign = (code >> sign_bit) != 0 ? -1.0f : 1.0f;
  if (magnitude > Format::largest) {
    const bool infinite = magnitude == Format::infinity;
    return infinite ? sign * std::numeric_limits<float>::infinity() : std::bit_cast<float>(nan_f32);
  }
  const int exponent = magnitude >> Format::mantissa;
  const int fraction = magnitude & ((1 << Format::mantissa) - 1);
  const int unit = 1 - Format::bias - Format::mantissa;  // log2 of the smallest subnormal
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), unit);
  const int significand = fraction | (1 << Format::mantissa);
  return sign * std::ldexp(static_cast<float>(significand), unit + exponent - 1);
}

// The nearest code, ties to even. Takes a double so that float64 is rounded once, not twice.
template <class Format>
typename Format::Bits encode(double value) {
  using Bits = typename Format::Bits;
  constexpr int sign_bit = 8 * sizeof(Bits) - 1;
  if (std::isnan(value)) return Format::nan;
  const int sign = std::signbit(value) ? 1 << sign_bit : 0;
  if (std::isinf(value)) return static_cast<Bits>(sign | Format::infinity);
  if (value == 0) return static_cast<Bits>(sign);

  constexpr int lowest = 1 - Format::bias;  // exponent of subnormals and of the smallest normal
  const int exponent = std::max(std::ilogb(value), lowest);
  if (exponent > Format::bias + 1) return static_cast<Bits>(sign | Format::overflow);
  const double units = std::ldexp(std::fabs(value), Format::mantissa - exponent);
  // For a normal number `units` includes the hidden bit, which makes up for the exponent field
  // being one more than `exponent - lowest`; rounding up to the next binade carries into the field
  // the same way.
  const int magnitude =
      ((exponent - lowest) << Format::mantissa) + static_cast<int>(std::nearbyint(units));
  return static_cast<Bits>(sign | (magnitude > Format::largest ? Format::overflow : magnitude));
}

void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType type,
            Op op);
void reduce_many(std::byte* out, const std::byte* const* in, int n, std::size_t count, DType type,
                 Op op);
void finish_avg(std::byte* data, std::size_t count, DType type, float divisor);
void cast(std::byte* out, DType out_type, const std::byte* in, DType in_type, std::size_t count);

}  // namespace pith::kernels::scalar
