// What SIMD and scalar forms of the coding kernels share: a block's scale, and the numbers drawn.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/sparse_kernel_args.hpp"
#include "kernels/formats.hpp"

namespace pith::kernels {

// The highest level of signed integers of `bits` bits; the lowest is its negative.
constexpr int last_level(unsigned bits) { return (1 << (bits - 1)) - 1; }

// bf16 is what other kernels do as well.
inline ConvertKernel::Args as_conversion(const EncodeValuesKernel::Args& args) {
  const auto* in = reinterpret_cast<const std::byte*>(args.in);
  return {args.out, DType::bf16, in, DType::f32, args.count, 1};
}
inline ConvertKernel::Args as_conversion(const DecodeValuesKernel::Args& args) {
  return {args.out, args.type, args.in, DType::bf16, args.count, args.divisor};
}
inline SumValuesKernel::Args as_plain_sum(const SumCodedKernel::Args& args) {
  return {args.out, args.in, args.n, args.count, DType::bf16, nullptr, nullptr};
}

// What the largest magnitude of a block becomes.
constexpr float last_value(const Coding& coding) {
  constexpr float last_e4m3 = 448;
  constexpr float last_e5m2 = 57344;
  if (coding.kind == Coding::Kind::e4m3) return last_e4m3;
  if (coding.kind == Coding::Kind::e5m2) return last_e5m2;
  return static_cast<float>(last_level(coding.bits));
}

constexpr bool is_of_signs(Coding::Kind kind) {
  return kind == Coding::Kind::signs || kind == Coding::Kind::mean_signs;
}

struct BlockScale {
  float scale = 0;
  float factor = 0;  // what values are multiplied by; of `powers` and `signs` none
};

// The mean of a block's magnitudes is that of 16 sums, each of every 16th value in order, times a
// small number, so that no sum is infinite.
inline constexpr std::size_t magnitude_sums = 16;
inline constexpr float magnitude_part = 1.0f / Coding::most_block;
inline float mean_of(std::array<float, magnitude_sums> sums, std::size_t values) {
  for (std::size_t half = magnitude_sums / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0] / (magnitude_part * static_cast<float>(values));
}

// `largest`: the largest magnitude of the block, as bits; `given`: of `signs` the input's scale, of
// `mean_signs` the mean. Numbers so small that their factor is not finite count as zero.
inline BlockScale scale_of(const Coding& coding, std::uint32_t largest, float given) {
  constexpr std::uint32_t infinity = 0x7f800000u;
  constexpr std::uint32_t last_exponent = 254;
  if (largest >= infinity) return {std::bit_cast<float>(nan_f32), 0};
  if (is_of_signs(coding.kind)) return {given, 0};
  if (coding.kind == Coding::Kind::powers) {
    const std::uint32_t exponent = std::min((largest >> 23) + 1, last_exponent);
    return {std::bit_cast<float>(exponent << 23), 0};
  }
  const float last = last_value(coding);
  const float most = std::bit_cast<float>(largest);
  const float factor = last / most;
  if (!(factor <= std::numeric_limits<float>::max())) return {};
  return {most / last, factor};
}

// The constants of a 32-bit hash with two multiplications; low bias by Wellons's search
// (github.com/skeeto/hash-prospector). The key enters before the first and before the second; its
// bits are to be random themselves, as those of mix().
struct DrawHash {
  static constexpr std::uint32_t spread = 0x9e3779b9u;
  static constexpr std::uint32_t first = 0x7feb352du;
  static constexpr std::uint32_t second = 0x846ca68bu;
};

// 32 random bits for the value with this index.
constexpr std::uint32_t drawn_bits(std::uint64_t key, std::uint32_t index) {
  std::uint32_t x = index * DrawHash::spread + static_cast<std::uint32_t>(key);
  x = (x ^ x >> 16) * DrawHash::first;
  x ^= static_cast<std::uint32_t>(key >> 32);
  x = (x ^ x >> 15) * DrawHash::second;
  return x ^ x >> 16;
}

// Whether zero counts as negative.
constexpr bool sign_of_zero(std::uint64_t key, std::uint32_t index) {
  return (index * DrawHash::spread + static_cast<std::uint32_t>(key)) >> 31 != 0;
}

// For the block at `at` of each input.
inline bool is_marked(const SumCodedKernel::Args& args, std::size_t at) {
  for (std::size_t k = 0; k < args.n; ++k) {
    std::uint32_t scale = 0;
    std::memcpy(&scale, args.in[k] + at, sizeof scale);
    if (scale == Coding::marked_scale) return true;
  }
  return false;
}
// See DecodeValuesKernel and SumCodedKernel.
inline void replace_nonfinite(float* decoded, const float* instead, float divisor, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(decoded[i])) decoded[i] = instead[i] / divisor;
  }
}
inline void change_own(const float* own, const float* sums, const float* decoded, std::size_t n,
                       float* change) {
  for (std::size_t i = 0; i < n; ++i) {
    change[i] = std::isfinite(decoded[i]) ? (sums[i] - decoded[i]) - own[i] : -own[i];
  }
}

inline void mark(const Coding& coding, std::size_t values, std::byte* out) {
  std::memset(out, 0xff, coding.bytes(values));
}

}  // namespace pith::kernels
