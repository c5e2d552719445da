// Random bits of a key and an index, as drawn_bits() of src/kernels/coded_block.hpp.
#pragma once

#include "cuda/kernels/platform.hpp"

namespace pith::cuda {

PITH_DEVICE std::uint32_t drawn_bits(std::uint64_t key, std::uint32_t index) {
  std::uint32_t x = index * 0x9e3779b9u + static_cast<std::uint32_t>(key);
  x = (x ^ x >> 16) * 0x7feb352du;
  x ^= static_cast<std::uint32_t>(key >> 32);
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

}  // namespace pith::cuda
