// Shared by the tests of the compression kernels: vectors that matter, and comparisons.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/cast.hpp"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "support.hpp"

namespace pith::kernels::test {

inline constexpr std::array<DType, 3> value_types = {DType::f32, DType::f16, DType::bf16};

enum class Kind { normal, specials, equal, zeros, one_huge, denormal, ties, nonfinite, all_sizes };
inline constexpr std::array<Kind, 9> all_kinds = {Kind::normal, Kind::specials,  Kind::equal,
                                                  Kind::zeros,  Kind::one_huge,  Kind::denormal,
                                                  Kind::ties,   Kind::nonfinite, Kind::all_sizes};

inline float element_of(Kind kind, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  const float value = normal(random);
  switch (kind) {
    case Kind::normal:
    case Kind::one_huge:
      return value;
    case Kind::equal:
      return std::copysign(0.75f, value);
    case Kind::zeros:
      return std::copysign(0.0f, value);
    case Kind::denormal:
      return value * 1e-40f;
    case Kind::all_sizes: {
      // The squares of most leave float32's range.
      constexpr std::array<float, 5> factors = {1e-40f, 1e-25f, 1, 1e25f, 1e37f};
      return value * factors[random() % factors.size()];
    }
    case Kind::ties:
      return std::round(value * 4) / 4;
    case Kind::specials: {
      static const auto specials = special_patterns(DType::f32);
      return std::bit_cast<float>(static_cast<std::uint32_t>(specials[random() % specials.size()]));
    }
    case Kind::nonfinite:
      if (random() % 64 == 0) return std::copysign(std::numeric_limits<float>::infinity(), value);
      return random() % 64 == 0 ? std::numeric_limits<float>::quiet_NaN() : value;
  }
  return 0;
}

inline std::vector<float> floats_of(Kind kind, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = element_of(kind, random);
  if (kind == Kind::one_huge && count > 0) values[count / 2] = 3e38f;
  return values;
}

// The values in another type, after `offset` bytes.
inline Bytes as_type(const std::vector<float>& values, DType type, std::size_t offset = 0) {
  Bytes bytes(offset + values.size() * size_of(type));
  const auto* in = reinterpret_cast<const std::byte*>(values.data());
  if (type == DType::f32) {
    if (!values.empty()) std::memcpy(bytes.data() + offset, in, 4 * values.size());
  } else {
    cast(bytes.data() + offset, type, in, DType::f32, values.size());
  }
  return bytes;
}

// About `share` of the indices of a range, rising.
inline std::vector<std::uint32_t> some_indices(std::uint32_t first, std::size_t span, double share,
                                               unsigned seed) {
  std::mt19937 random(seed);
  const double bound = share * 4294967296.0;
  std::vector<std::uint32_t> indices;
  for (std::size_t i = 0; i < span; ++i) {
    if (double(random()) < bound) indices.push_back(first + static_cast<std::uint32_t>(i));
  }
  return indices;
}

// Bits, but any NaN equals any other: which payload an addition of two keeps is open.
inline bool same(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}
inline bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return same(x, y); });
}
inline bool same_values(const Bytes& a, const Bytes& b, DType type) {
  if (type != DType::f32 || a.empty() || b.empty()) return a == b;
  std::vector<float> x(a.size() / 4), y(b.size() / 4);
  std::memcpy(x.data(), a.data(), 4 * x.size());
  std::memcpy(y.data(), b.data(), 4 * y.size());
  return same(x, y);
}
// Sums of squares in another order.
inline bool close(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b || std::fabs(a - b) <= 1e-12 * std::max(std::fabs(a), std::fabs(b));
}

}  // namespace pith::kernels::test
