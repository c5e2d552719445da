// The encoding of a list of indices as bytes.
//
// The range is cut into blocks of 65,536 elements, counted from its first one. A block is a
// little-endian word of 32 bits, `count | form << 24`, and, where count > 0, its indices relative
// to the block's first element:
//   form 0..16   Elias-Fano with `form` low bits: the low bits of every index, packed from bit 0
//                of byte 0 on; then, from a new byte on, count + (elements >> form) + 1 bits, of
//                which bit (index >> form) + i is one for the i-th index, all others zero
//   form 255     a bitmap: one bit per element of the block
// Each part ends with a whole byte. At a density d, uniformly chosen indices take about
// 2 + log2(1/d) bits: 8.6 at 1 %, where the entropy is 8.1 [Elias 1974; Fano 1971].
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pith::kernels {

struct IndexBlock {
  static constexpr std::size_t elements = std::size_t{1} << 16;
  static constexpr std::size_t header_bytes = 4;
  static constexpr unsigned most_low_bits = 16;
  static constexpr unsigned bitmap = 255;

  // Sizes for a block of `span` elements.
  static constexpr std::size_t bitmap_bytes(std::size_t span) { return (span + 7) / 8; }
  static constexpr std::size_t low_bytes(std::size_t count, unsigned low_bits) {
    return (count * low_bits + 7) / 8;
  }
  static constexpr std::size_t high_bits(std::size_t count, std::size_t span, unsigned low_bits) {
    return count + (span >> low_bits) + 1;
  }
  static constexpr std::size_t high_bytes(std::size_t count, std::size_t span, unsigned low_bits) {
    return (high_bits(count, span, low_bits) + 7) / 8;
  }

  // The form that takes the fewest bytes. Precondition: count > 0.
  static constexpr unsigned best_form(std::size_t count, std::size_t span) {
    const auto low_bits =
        static_cast<unsigned>(std::bit_width(std::max<std::size_t>(span / count, 1))) - 1;
    const std::size_t coded = low_bytes(count, low_bits) + high_bytes(count, span, low_bits);
    return coded < bitmap_bytes(span) ? low_bits : bitmap;
  }
  static constexpr std::size_t payload_bytes(std::size_t count, std::size_t span, unsigned form) {
    if (count == 0) return 0;
    if (form == bitmap) return bitmap_bytes(span);
    return low_bytes(count, form) + high_bytes(count, span, form);
  }
};

}  // namespace pith::kernels
