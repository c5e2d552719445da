// One operation on one pair of elements in a native type. Used by the scalar twins and by reduce()
// for short vectors, where a dispatch would cost too much.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.hpp"
#include "kernels/formats.hpp"

namespace pith::kernels {

template <class T>
T load(const std::byte* bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* bytes, std::size_t index, T value) {
  std::memcpy(bytes + index * sizeof(T), &value, sizeof(T));
}

inline float canonical(float value) {
  return std::isnan(value) ? std::bit_cast<float>(nan_f32) : value;
}
inline double canonical(double value) {
  return std::isnan(value) ? std::bit_cast<double>(nan_f64) : value;
}

template <std::floating_point T>
T combine_pair(T a, T b, Op op) {
  if (op == Op::sum || op == Op::avg) return canonical(a + b);
  if (op == Op::prod) return canonical(a * b);
  if (std::isnan(a) || std::isnan(b)) return canonical(a + b);
  const bool a_below_b = a < b || (a == b && std::signbit(a));
  return a_below_b == (op == Op::max) ? b : a;
}

template <std::integral T>
T combine_pair(T a, T b, Op op) {
  // In 64-bit unsigned arithmetic: wraps without undefined behaviour, without integer promotion.
  using Unsigned = std::make_unsigned_t<T>;
  const std::uint64_t wide_a = static_cast<Unsigned>(a);
  const std::uint64_t wide_b = static_cast<Unsigned>(b);
  if (op == Op::sum || op == Op::avg) return static_cast<T>(wide_a + wide_b);
  if (op == Op::prod) return static_cast<T>(wide_a * wide_b);
  if (op == Op::band) return static_cast<T>(wide_a & wide_b);
  if (op == Op::bor) return static_cast<T>(wide_a | wide_b);
  if (op == Op::bxor) return static_cast<T>(wide_a ^ wide_b);
  if (op == Op::land) return static_cast<T>(a != 0 && b != 0);
  if (op == Op::lor) return static_cast<T>(a != 0 || b != 0);
  if (op == Op::lxor) return static_cast<T>((a != 0) != (b != 0));
  return (a < b) == (op == Op::max) ? b : a;
}

}  // namespace pith::kernels
