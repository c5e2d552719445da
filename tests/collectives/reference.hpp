// What a reduction means, one element at a time and without the library's kernels.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/dtype.hpp"
#include "kernels/scalar.hpp"

namespace pith::test {

// --- integers: all of them in 64 bits, cut to the type after every operation ---

constexpr bool is_signed(DType type) {
  return type == DType::i8 || type == DType::i32 || type == DType::i64;
}

constexpr std::uint64_t cut(DType type, std::uint64_t value) {
  const auto unused = static_cast<unsigned>(64 - 8 * size_of(type));
  if (!is_signed(type)) return value << unused >> unused;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
}

inline std::uint64_t load_integer(DType type, const std::byte* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, size_of(type));
  return cut(type, value);
}

constexpr std::uint64_t combine_integers(DType type, Op op, std::uint64_t a, std::uint64_t b) {
  const bool below =
      is_signed(type) ? static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b) : a < b;
  switch (op) {
    case Op::prod:
      return cut(type, a * b);
    case Op::max:
      return below ? b : a;
    case Op::min:
      return below ? a : b;
    case Op::band:
      return a & b;
    case Op::bor:
      return a | b;
    case Op::bxor:
      return a ^ b;
    case Op::land:
      return a != 0 && b != 0 ? 1 : 0;
    case Op::lor:
      return a != 0 || b != 0 ? 1 : 0;
    case Op::lxor:
      return (a != 0) != (b != 0) ? 1 : 0;
    default:
      return cut(type, a + b);
  }
}

constexpr std::uint64_t divide_integer(DType type, std::uint64_t value, int ranks) {
  if (!is_signed(type)) return value / static_cast<std::uint64_t>(ranks);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value) / ranks);
}

// --- floats ---

// Half of the distance from 1 to the next number, and the smallest number above 0. Of complex types
// four times as much: a product is three roundings in each part.
struct Precision {
  double unit;
  double least;
};

constexpr Precision precision_of(DType type) {
  switch (type) {
    case DType::f16:
      return {0x1p-11, 0x1p-24};
    case DType::bf16:
      return {0x1p-8, 0x1p-133};
    case DType::f8e4m3:
      return {0x1p-4, 0x1p-9};
    case DType::f8e5m2:
      return {0x1p-3, 0x1p-16};
    case DType::f32:
      return {0x1p-24, 0x1p-149};
    case DType::c64:
      return {0x1p-22, 0x1p-147};
    case DType::c128:
      return {0x1p-51, 0};
    default:
      return {0x1p-53, 0};
  }
}

template <class T>
T load_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

inline double load_float(DType type, const std::byte* from) {
  using kernels::Bfloat16, kernels::Float16, kernels::Float8e4m3, kernels::Float8e5m2;
  namespace scalar = kernels::scalar;
  switch (type) {
    case DType::f16:
      return static_cast<double>(scalar::decode<Float16>(load_as<std::uint16_t>(from)));
    case DType::bf16:
      return static_cast<double>(scalar::decode<Bfloat16>(load_as<std::uint16_t>(from)));
    case DType::f8e4m3:
      return static_cast<double>(scalar::decode<Float8e4m3>(load_as<std::uint8_t>(from)));
    case DType::f8e5m2:
      return static_cast<double>(scalar::decode<Float8e5m2>(load_as<std::uint8_t>(from)));
    case DType::f32:
      return static_cast<double>(load_as<float>(from));
    default:
      return load_as<double>(from);
  }
}

inline void store_float(DType type, std::byte* to, double value) {
  using kernels::Bfloat16, kernels::Float16, kernels::Float8e4m3, kernels::Float8e5m2;
  namespace scalar = kernels::scalar;
  auto put = [to](auto bits) { std::memcpy(to, &bits, sizeof bits); };
  switch (type) {
    case DType::f16:
      return put(scalar::encode<Float16>(value));
    case DType::bf16:
      return put(scalar::encode<Bfloat16>(value));
    case DType::f8e4m3:
      return put(scalar::encode<Float8e4m3>(value));
    case DType::f8e5m2:
      return put(scalar::encode<Float8e5m2>(value));
    case DType::f32:
      return put(static_cast<float>(value));
    default:
      return put(value);
  }
}

// A float of any type, real ones with 0 as imaginary part.
using Number = std::complex<long double>;

inline Number load_number(DType type, const std::byte* from) {
  if (!is_complex(type)) return load_float(type, from);
  const DType part = part_of(type);
  return {load_float(part, from), load_float(part, from + size_of(part))};
}

inline void store_number(DType type, std::byte* to, Number value) {
  const auto real = static_cast<double>(value.real());
  if (!is_complex(type)) return store_float(type, to, real);
  const DType part = part_of(type);
  store_float(part, to, real);
  store_float(part, to + size_of(part), static_cast<double>(value.imag()));
}

// Within a factor of 1.5 of the absolute value, and cheaper.
inline long double magnitude_of(Number value) {
  return std::fabs(value.real()) + std::fabs(value.imag());
}

inline Number combine_floats(Op op, Number a, Number b) {
  if (op == Op::prod) return a * b;
  if (op == Op::max) return a.real() < b.real() ? b : a;
  if (op == Op::min) return a.real() < b.real() ? a : b;
  return a + b;
}

}  // namespace pith::test
