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
  if (coding.kind == Coding::Kind::ternary || coding.kind == Coding::Kind::dynamic) return 1;
  return static_cast<float>(last_level(coding.bits));
}

constexpr bool is_of_signs(Coding::Kind kind) {
  return kind == Coding::Kind::signs || kind == Coding::Kind::mean_signs;
}

// Whose scales are given or means, whatever the largest magnitude.
constexpr bool has_means(Coding::Kind kind) {
  return is_of_signs(kind) || kind == Coding::Kind::two_means;
}

struct BlockScale {
  float scale = 0;
  float below = 0;   // of `two_means`: the second one
  float factor = 0;  // what values are multiplied by; of `powers`, means and signs none
};

// What a block is measured by besides its largest magnitude.
struct BlockMeasure {
  float mean = 0;         // of `signs` the input's scale, else the mean magnitude
  float below = 0;        // of `two_means`, whose `mean` is that of the other values
  float mean_square = 0;  // where values are clipped; of the values by the largest magnitude
};

// Sums of a block's values are 32 sums, each of every 32nd value in order: several vectors, since
// one would wait for each addition. Values are summed times a small number, so that no sum is
// infinite.
inline constexpr std::size_t block_sums = 32;
inline constexpr float summed_part = 1.0f / Coding::most_block;
using BlockSums = std::array<float, block_sums>;
inline float sum_of(BlockSums sums) {
  for (std::size_t half = block_sums / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}
// Of values whose parts have this sum; of no values zero.
inline float mean_of(float sum, std::size_t values) {
  return values == 0 ? 0 : sum / (summed_part * static_cast<float>(values));
}

// What magnitudes are multiplied by before they are squared; 0 if none of them is to count.
inline float square_factor(std::uint32_t largest) {
  const float factor = 1 / std::bit_cast<float>(largest);
  return factor <= std::numeric_limits<float>::max() ? factor : 0;
}

// `largest`: the largest magnitude of the block, as bits. Numbers so small that their factor is not
// finite count as zero.
inline BlockScale scale_of(const Coding& coding, std::uint32_t largest,
                           const BlockMeasure& measure) {
  constexpr std::uint32_t infinity = 0x7f800000u;
  constexpr std::uint32_t last_exponent = 254;
  constexpr float greatest = std::numeric_limits<float>::max();
  if (largest >= infinity) return {std::bit_cast<float>(nan_f32), std::bit_cast<float>(nan_f32)};
  if (has_means(coding.kind)) return {measure.mean, measure.below};
  if (coding.kind == Coding::Kind::powers) {
    const std::uint32_t exponent = std::min((largest >> 23) + 1, last_exponent);
    return {std::bit_cast<float>(exponent << 23)};
  }
  if (coding.kind == Coding::Kind::f16) {
    // Both powers are normal numbers, so that products with them are exact but for underflow.
    constexpr std::uint32_t last = 15;
    const std::uint32_t exponent = std::max(largest >> 23, last + 1) - last;
    return {std::bit_cast<float>(exponent << 23), 0,
            std::bit_cast<float>((last_exponent - exponent) << 23)};
  }
  const float last = last_value(coding);
  float most = std::bit_cast<float>(largest);
  if (coding.clip > 0) most *= std::min(coding.clip * std::sqrt(measure.mean_square), 1.0f);
  if (coding.kind == Coding::Kind::ternary) most = std::min(most * coding.sparsity, greatest);
  const float factor = last / most;
  if (!(factor <= greatest)) return {};
  return {most / last, 0, factor};
}

// At the beginning of a block.
inline void write_scales(const Coding& coding, const BlockScale& block, std::byte* out) {
  std::memcpy(out, &block.scale, sizeof block.scale);
  if (coding.kind != Coding::Kind::two_means) return;
  std::memcpy(out + sizeof block.scale, &block.below, sizeof block.below);
}
inline BlockScale read_scales(const Coding& coding, const std::byte* in) {
  BlockScale block;
  std::memcpy(&block.scale, in, sizeof block.scale);
  if (coding.kind != Coding::Kind::two_means) return block;
  std::memcpy(&block.below, in + sizeof block.scale, sizeof block.below);
  return block;
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

// The digits of `ternary` codes count 1, 3, 9, 27 and 81; that of zero is 1.
inline constexpr std::array<std::uint32_t, 5> ternary_places = {1, 3, 9, 27, 81};
inline constexpr std::uint32_t ternary_zeros = 121;

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
