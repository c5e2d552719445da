// For every byte, the positions of its set bits, lowest first, padded with zeros.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pith::kernels {

using SetBits = std::array<std::uint8_t, 8>;

constexpr std::array<SetBits, 256> make_set_bits() {
  std::array<SetBits, 256> table{};
  for (std::size_t byte = 0; byte < table.size(); ++byte) {
    std::size_t found = 0;
    for (std::uint8_t bit = 0; bit < 8; ++bit) {
      if ((byte >> bit & 1u) != 0) table[byte][found++] = bit;
    }
  }
  return table;
}

inline constexpr std::array<SetBits, 256> set_bits = make_set_bits();

}  // namespace pith::kernels
