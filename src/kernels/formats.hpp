// The bit layouts of the floating-point formats narrower than 32 bits.
#pragma once

#include <cstdint>
#include <type_traits>

namespace pith::kernels {

// Sign, then exponent, then `mantissa` bits, from the top of `Bits` down. A code is the bit pattern
// of a value, a magnitude is a code without its sign. A finite value too large for the format
// becomes `overflow`, an infinity becomes `infinity`.
struct Float16 {
  using Bits = std::uint16_t;
  static constexpr int mantissa = 10, bias = 15;
  static constexpr Bits largest = 0x7bff, overflow = 0x7c00, infinity = 0x7c00, nan = 0x7fff;
};

struct Bfloat16 {
  using Bits = std::uint16_t;
  static constexpr int mantissa = 7, bias = 127;
  static constexpr Bits largest = 0x7f7f, overflow = 0x7f80, infinity = 0x7f80, nan = 0x7fff;
};

// OCP E4M3FN: no infinity, and only the last magnitude is a NaN.
struct Float8e4m3 {
  using Bits = std::uint8_t;
  static constexpr int mantissa = 3, bias = 7;
  static constexpr Bits largest = 0x7e, overflow = 0x7e, infinity = 0x7e, nan = 0x7f;
};

struct Float8e5m2 {
  using Bits = std::uint8_t;
  static constexpr int mantissa = 2, bias = 15;
  static constexpr Bits largest = 0x7b, overflow = 0x7b, infinity = 0x7c, nan = 0x7f;
};

// The largest numbers of the 16-bit formats.
inline constexpr float largest_f16 = 65504;
inline constexpr float largest_bf16 = 0x1.fep127f;

// Every NaN that a kernel produces is this one: all bits set but the sign. IEEE 754 leaves payloads
// open, so otherwise the result of two NaNs would depend on operand order and on the CPU. NVIDIA
// GPUs return the same pattern for formats up to 32 bits.
inline constexpr std::uint32_t nan_f32 = 0x7fffffffu;
inline constexpr std::uint64_t nan_f64 = 0x7fffffffffffffffu;

}  // namespace pith::kernels
