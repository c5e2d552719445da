// Arithmetic on one element of every type, bit-identical to src/kernels/scalar.cpp: one NaN per
// type, rounded once to nearest even, narrow floats computed in float32. Conversions use the
// device's instructions where it has them, else integer operations with the same result.
#pragma once

#include <type_traits>

#if defined(__CUDACC__) && !defined(PITH_SIMT)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

#include "core/dtype.hpp"
#include "cuda/kernels/platform.hpp"

namespace pith::cuda {

inline constexpr std::uint32_t float_infinity = 0x7f800000u;

PITH_DEVICE bool is_nan(float value) { return value != value; }
PITH_DEVICE bool is_nan(double value) { return value != value; }
PITH_DEVICE float canonical(float value) {
  return is_nan(value) ? bits_as<float>(std::uint32_t{0x7fffffff}) : value;
}
PITH_DEVICE double canonical(double value) {
  return is_nan(value) ? bits_as<double>(std::uint64_t{0x7fffffffffffffff}) : value;
}
PITH_DEVICE std::uint32_t magnitude_of(float value) {
  return bits_as<std::uint32_t>(value) & 0x7fffffffu;
}

// A narrow float. `overflow` replaces finite values that are too large, `infinity` infinite ones.
template <class Bits_, int kMantissa, int kBias, unsigned kLargest, unsigned kOverflow,
          unsigned kInfinity, unsigned kNan>
struct Narrow {
  using Bits = Bits_;
  static constexpr int mantissa = kMantissa, bias = kBias;
  static constexpr std::uint32_t largest = kLargest, overflow = kOverflow, infinity = kInfinity,
                                 nan = kNan, sign = 1u << (8 * sizeof(Bits) - 1);
  Bits bits;
};
using Half = Narrow<std::uint16_t, 10, 15, 0x7bff, 0x7c00, 0x7c00, 0x7fff>;
using Bfloat = Narrow<std::uint16_t, 7, 127, 0x7f7f, 0x7f80, 0x7f80, 0x7fff>;
using F8e4m3 = Narrow<std::uint8_t, 3, 7, 0x7e, 0x7e, 0x7e, 0x7f>;
using F8e5m2 = Narrow<std::uint8_t, 2, 15, 0x7b, 0x7b, 0x7c, 0x7f>;

template <class T>
inline constexpr bool is_narrow = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat> ||
                                  std::is_same_v<T, F8e4m3> || std::is_same_v<T, F8e5m2>;

// Whether the target device converts the format to float32 and back in hardware.
template <class Format>
inline constexpr bool is_native = false;
#if defined(__CUDA_ARCH__) && !defined(PITH_SIMT)
template <>
inline constexpr bool is_native<Half> = true;
template <>
inline constexpr bool is_native<Bfloat> = true;
template <>
inline constexpr bool is_native<F8e4m3> = __CUDA_ARCH__ >= 890;
template <>
inline constexpr bool is_native<F8e5m2> = __CUDA_ARCH__ >= 890;

template <class Format>
PITH_KERNEL float decode_natively(Format code) {
  if constexpr (std::is_same_v<Format, Half>) {
    return __half2float(__ushort_as_half(code.bits));
  } else if constexpr (std::is_same_v<Format, Bfloat>) {
    return __bfloat162float(__ushort_as_bfloat16(code.bits));
  } else {
    constexpr auto format = std::is_same_v<Format, F8e4m3> ? __NV_E4M3 : __NV_E5M2;
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code.bits, format)));
  }
}

// 8-bit formats: not for NaN and infinities, whose codes differ here.
template <class Format>
PITH_KERNEL Format encode_natively(float value) {
  if constexpr (std::is_same_v<Format, Half>) {
    return {__half_as_ushort(__float2half_rn(value))};
  } else if constexpr (std::is_same_v<Format, Bfloat>) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  } else {
    constexpr auto format = std::is_same_v<Format, F8e4m3> ? __NV_E4M3 : __NV_E5M2;
    return {__nv_cvt_float_to_fp8(value, __NV_SATFINITE, format)};
  }
}
#endif

// Exact. The code's fields form a float32 that is too small by a power of two; multiplying by that
// power also normalises subnormals.
template <class Format>
PITH_DEVICE float decode(Format code) {
  if constexpr (is_native<Format>) return canonical(decode_natively(code));
  const auto bits = static_cast<std::uint32_t>(code.bits);
  const std::uint32_t magnitude = bits & (Format::sign - 1);
  const std::uint32_t sign = (bits & Format::sign) != 0 ? 0x80000000u : 0u;
  if (magnitude > Format::largest) {
    const bool infinite = magnitude == Format::infinity;
    return bits_as<float>(infinite ? sign | float_infinity : 0x7fffffffu);
  }
  constexpr std::uint32_t power = static_cast<std::uint32_t>(254 - Format::bias) << 23;
  const float small = bits_as<float>(magnitude << (23 - Format::mantissa));
  return bits_as<float>(bits_as<std::uint32_t>(small * bits_as<float>(power)) | sign);
}

// From float32, or directly from float64, so that a float64 is rounded only once.
template <class Format, class Real>
PITH_DEVICE Format encode(Real value) {
  constexpr bool native = is_native<Format> && sizeof(Real) == 4;
  if constexpr (native && sizeof(Format) == 2) return encode_natively<Format>(value);
  using Word = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
  using Bits = typename Format::Bits;
  constexpr int fraction = sizeof(Real) == 4 ? 23 : 52;
  constexpr int bias = sizeof(Real) == 4 ? 127 : 1023;
  constexpr int top = 8 * static_cast<int>(sizeof(Real)) - 1;
  constexpr Word infinity = static_cast<Word>(2 * bias + 1) << fraction;
  const Word all = bits_as<Word>(value);
  const Word magnitude = all & ((Word{1} << top) - 1);
  const std::uint32_t sign = (all >> top) != 0 ? Format::sign : 0;
  if (magnitude > infinity) return {static_cast<Bits>(Format::nan)};
  if (magnitude == infinity) return {static_cast<Bits>(sign | Format::infinity)};
  if constexpr (native) return encode_natively<Format>(value);

  constexpr int lowest = 1 - Format::bias;  // exponent of subnormals and of the smallest normal
  const int field = static_cast<int>(magnitude >> fraction);
  const Word hidden = field != 0 ? Word{1} << fraction : 0;
  const Word significand = (magnitude & ((Word{1} << fraction) - 1)) | hidden;
  const int own = (field != 0 ? field : 1) - bias;
  const int exponent = larger(own, lowest);
  if (exponent > Format::bias + 1) return {static_cast<Bits>(sign | Format::overflow)};
  const int shift = smaller(fraction - Format::mantissa + exponent - own, fraction + 2);
  const Word rest = significand & ((Word{1} << shift) - 1);
  const Word half = Word{1} << (shift - 1);
  Word units = significand >> shift;
  units += rest > half || (rest == half && (units & 1) != 0) ? 1 : 0;
  // Rounding up to the next binade carries into the exponent's field.
  const auto code = (static_cast<std::uint32_t>(exponent - lowest) << Format::mantissa) +
                    static_cast<std::uint32_t>(units);
  return {static_cast<Bits>(sign | (code > Format::largest ? Format::overflow : code))};
}

// A complex number, in kernels of products: elsewhere it is a pair of reals.
template <class Part>
struct Complex {
  Part real, imaginary;
};

template <class Part>
PITH_DEVICE Complex<Part> multiply(Complex<Part> a, Complex<Part> b) {
  return {canonical(a.real * b.real - a.imaginary * b.imaginary),
          canonical(a.real * b.imaginary + a.imaginary * b.real)};
}

// The type that values are computed in: float32 for narrow floats, else the type itself.
template <class T>
PITH_DEVICE auto widen(T value) {
  if constexpr (is_narrow<T>) {
    return decode(value);
  } else {
    return value;
  }
}
template <class T, class Value>
PITH_DEVICE T narrow(Value value) {
  if constexpr (is_narrow<T>) {
    return encode<T>(value);
  } else {
    return value;
  }
}

// One operation on two values of a computing type. Avg adds.
template <Op kOp, class T>
PITH_DEVICE T combine_values(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if constexpr (kOp == Op::sum || kOp == Op::avg) return canonical(a + b);
    if constexpr (kOp == Op::prod) return canonical(a * b);
    if (is_nan(a) || is_nan(b)) return canonical(a + b);
    using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    const bool negative = (bits_as<Word>(a) >> (8 * sizeof(T) - 1)) != 0;
    const bool a_below_b = a < b || (a == b && negative);
    return a_below_b == (kOp == Op::max) ? b : a;
  } else {
    // Unsigned 64-bit arithmetic: wraps, and avoids integer promotion.
    using Unsigned = std::make_unsigned_t<T>;
    const std::uint64_t wide_a = static_cast<Unsigned>(a);
    const std::uint64_t wide_b = static_cast<Unsigned>(b);
    if constexpr (kOp == Op::sum || kOp == Op::avg) return static_cast<T>(wide_a + wide_b);
    if constexpr (kOp == Op::prod) return static_cast<T>(wide_a * wide_b);
    if constexpr (kOp == Op::band) return static_cast<T>(wide_a & wide_b);
    if constexpr (kOp == Op::bor) return static_cast<T>(wide_a | wide_b);
    if constexpr (kOp == Op::bxor) return static_cast<T>(wide_a ^ wide_b);
    if constexpr (kOp == Op::land) return static_cast<T>(a != 0 && b != 0);
    if constexpr (kOp == Op::lor) return static_cast<T>(a != 0 || b != 0);
    if constexpr (kOp == Op::lxor) return static_cast<T>((a != 0) != (b != 0));
    return (a < b) == (kOp == Op::max) ? b : a;
  }
}

template <Op kOp, class Part>
PITH_DEVICE Complex<Part> combine(Complex<Part> a, Complex<Part> b) {
  static_assert(kOp == Op::prod);
  return multiply(a, b);
}

template <Op kOp, class T>
PITH_DEVICE T combine(T a, T b) {
  return narrow<T>(combine_values<kOp>(widen(a), widen(b)));
}

template <class T>
PITH_DEVICE T divide(T value, float divisor) {
  if constexpr (is_narrow<T>) {
    return encode<T>(canonical(decode(value) / divisor));
  } else if constexpr (std::is_floating_point_v<T>) {
    return canonical(value / static_cast<T>(divisor));
  } else if constexpr (sizeof(T) < sizeof(int)) {
    // The divisor may not fit into T.
    return static_cast<T>(static_cast<int>(value) / static_cast<int>(divisor));
  } else {
    return static_cast<T>(value / static_cast<T>(divisor));
  }
}

// Between floats of any width, rounded once.
template <class To, class From>
PITH_DEVICE To convert(From from) {
  const auto value = widen(from);
  if constexpr (is_narrow<To>) {
    return encode<To>(value);
  } else {
    return canonical(static_cast<To>(value));
  }
}

// For values that are sent: clipped to the type's largest number, since the sender keeps the rest.
template <class T>
PITH_DEVICE T to_value(float value) {
  if constexpr (is_narrow<T>) {
    const float largest = decode(T{static_cast<typename T::Bits>(T::largest)});
    if (value > largest) return encode<T>(largest);
    if (value < -largest) return encode<T>(-largest);
    return encode<T>(value);
  } else {
    return value;
  }
}

}  // namespace pith::cuda
