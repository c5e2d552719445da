// How a vector of values is coded in few bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"

namespace pith {

// Values are coded in blocks: a float32 scale, or two, then a code per value. Byte j of a block's
// codes has those of its values j, j + n, j + 2 n, ... from its lowest digits up, with n the number
// of these bytes, so that neighbouring values make neighbouring bytes. f16 has two bytes for each
// code. A scale of NaN makes all values of its block NaN, and where there are two, both are; a
// value that is not finite makes its block's scale NaN. A scale with all bits set is such a NaN,
// too, and a sum passes it on: no values are coded to it. bf16 has no scale, and its values lie one
// behind another.
struct Coding {
  enum class Kind : std::uint8_t {
    levels,  // signed integers times the scale; the largest magnitude has the last level
    powers,  // a sign, and how many times the scale is halved; 127: zero
    signs,   // the sign of the scale; that of zero changes from index to index, and with the key
    mean_signs,  // as signs; the scale is the mean magnitude
    two_means,   // the first scale, or the second: the means of values from zero on, and below
    ternary,     // minus the scale, zero, the scale: a digit in base three, five of them in a byte
    e4m3,        // 8-bit floats times the scale; the largest magnitude has the last number
    e5m2,
    f16,      // float16 times a power of two; the largest magnitude has the last exponent
    dynamic,  // numbers of a map of 256 values times the largest magnitude; see dynamic_map.hpp
    bf16,
  };
  static constexpr std::size_t most_block = 4096;
  static constexpr std::uint32_t marked_scale = 0xffffffff;
  static constexpr std::size_t granule = 16;  // a block's bytes, of f16 pairs, are a multiple of it

  Kind kind = Kind::levels;
  std::uint8_t bits = 8;      // 1, 2, 4 or 8; of f16 and bf16 16; of ternary 8, a byte's
  bool draws = false;         // levels, powers: rounds at random without bias; else to the nearest
  std::uint16_t block = 256;  // values that share a scale
  // What coding loses stays with the rank that codes, for the next call; see coded_sum.hpp.
  bool keeps_rest = false;
  // levels: magnitudes beyond `clip` times the root mean square of their block are cut off there,
  // which is a bias; 0: none is.
  float clip = 0;
  // ternary: the scale is `sparsity` times the largest magnitude; from 1 on, below 2. The larger it
  // is, the more values round to zero.
  float sparsity = 1;
  // signs: the accumulator is a momentum, of which a call leaves this part: it votes by the signs
  // of momentum times what earlier calls left, plus its gradient. 0: nothing is left.
  float momentum = 0;

  // Whether a call leaves something in accumulators.
  constexpr bool keeps() const { return keeps_rest || momentum > 0; }
  constexpr std::size_t scale_bytes() const {
    if (kind == Kind::bf16) return 0;
    return kind == Kind::two_means ? 2 * sizeof(float) : sizeof(float);
  }
  // Codes are written in units: a byte with one or several, or the two bytes of one.
  constexpr std::size_t unit_bytes() const { return bits > 8 ? 2 : 1; }
  constexpr std::size_t codes_per_unit() const {
    return kind == Kind::ternary ? 5 : 8u * unit_bytes() / bits;
  }
  // Of a block of `values`, at most `block`.
  constexpr std::size_t code_units(std::size_t values) const {
    const std::size_t units = (values + codes_per_unit() - 1) / codes_per_unit();
    if (kind == Kind::bf16) return units;
    return (units + granule - 1) / granule * granule;
  }
  constexpr std::size_t code_bytes(std::size_t values) const {
    return code_units(values) * unit_bytes();
  }
  constexpr std::size_t bytes(std::size_t count) const {
    const std::size_t rest = count % block;
    return count / block * (scale_bytes() + code_bytes(block)) +
           (rest == 0 ? 0 : scale_bytes() + code_bytes(rest));
  }
  // How the sums of values that are coded this way are coded. They are not clipped: that would be a
  // second bias, and cut off where ranks agree most. Their blocks have the same length in bytes.
  constexpr Coding of_sums() const {
    Coding coding = *this;
    coding.clip = 0;
    return coding;
  }
  bool operator==(const Coding&) const = default;
};

// What a block is coded with besides its values.
struct CodingInput {
  float scale = 1;          // of `signs`
  std::uint64_t key = 0;    // of the numbers drawn: one per value, by its index
  std::uint32_t first = 0;  // index of the first value
};

}  // namespace pith
