#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/reduce.hpp"

namespace pith::kernels {

// Fills a short vector with the factor and uses the vectorised product.
void scale(std::byte* out, const std::byte* in, const std::byte* factor, std::size_t count,
           DType type) {
  constexpr std::size_t most_bytes = 4096;
  std::array<std::byte, most_bytes> factors;
  const std::size_t element = size_of(type);
  const std::size_t block = std::min(count, most_bytes / element);
  for (std::size_t i = 0; i < block; ++i) std::memcpy(&factors[i * element], factor, element);
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t at = begin * element;
    reduce(out + at, in + at, factors.data(), std::min(block, count - begin), type, Op::prod);
  }
}

}  // namespace pith::kernels
