// Shared by the kernel tests: what exists, values that matter, and every SIMD target in turn.
#pragma once

#include <hwy/targets.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "catch.hpp"
#include "core/dtype.hpp"

namespace pith::kernels::test {

using Bytes = std::vector<std::byte>;

inline constexpr std::array<DType, dtype_count> all_types = {
    DType::i8,  DType::u8,  DType::i32,  DType::u32,    DType::i64,    DType::u64, DType::f16,
    DType::f32, DType::f64, DType::bf16, DType::f8e4m3, DType::f8e5m2, DType::c64, DType::c128};
inline constexpr std::array<Op, op_count> all_ops = {Op::sum,  Op::prod, Op::max, Op::min,
                                                     Op::avg,  Op::band, Op::bor, Op::bxor,
                                                     Op::land, Op::lor,  Op::lxor};

constexpr bool is_real_float(DType type) { return !is_integer(type) && !is_complex(type); }

// Runs `body` on every target that was compiled and that this CPU has, down to the plain one.
template <class Body>
void for_each_target(Body body) {
  std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  targets.push_back(HWY_STATIC_TARGET);
  for (const std::int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    INFO("target " << hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// The bit patterns that tell implementations apart: zeros, subnormals, the largest numbers,
// infinities, NaNs with payloads, and their neighbours, of either sign. Of complex numbers: their
// parts'.
inline std::vector<std::uint64_t> special_patterns(DType type) {
  if (is_complex(type)) type = part_of(type);
  const int bits = static_cast<int>(size_of(type)) * 8;
  int mantissa = bits == 64 ? 52 : 23;
  if (type == DType::f16) mantissa = 10;
  if (type == DType::bf16) mantissa = 7;
  if (type == DType::f8e4m3) mantissa = 3;
  if (type == DType::f8e5m2) mantissa = 2;
  if (bits == 8 && is_integer(type)) mantissa = 3;
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  const std::uint64_t one_exponent = std::uint64_t{1} << mantissa;
  const std::uint64_t infinity = sign - one_exponent;
  const std::uint64_t one = ((sign >> 1) - one_exponent) & (sign - 1);
  std::vector<std::uint64_t> patterns;
  for (const std::uint64_t base : {std::uint64_t{0}, one_exponent, one, infinity - one_exponent,
                                   infinity, infinity + one_exponent / 2, sign - 1}) {
    for (int step = -2; step <= 2; ++step) {
      const std::uint64_t magnitude = (base + static_cast<std::uint64_t>(step)) & (sign - 1);
      patterns.push_back(magnitude);
      patterns.push_back(magnitude | sign);
    }
  }
  return patterns;
}

// `count` elements after `offset` bytes: half of them special, the others of random bits.
inline Bytes random_elements(DType type, std::size_t count, std::size_t offset, unsigned seed) {
  if (is_complex(type)) return random_elements(part_of(type), 2 * count, offset, seed);
  const auto specials = special_patterns(type);
  std::mt19937_64 random(seed);
  Bytes bytes(offset + count * size_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t pattern = random();
    if (pattern % 2 == 0) pattern = specials[(pattern >> 8) % specials.size()];
    std::memcpy(bytes.data() + offset + i * size_of(type), &pattern, size_of(type));
  }
  return bytes;
}

// Index of the first differing byte, or -1; one assertion a buffer keeps the tests fast.
inline std::ptrdiff_t first_difference(const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

}  // namespace pith::kernels::test
