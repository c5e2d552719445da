// Conversion and splitting of lists and vectors: plain loops that the compiler vectorises.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/cast.hpp"
#include "kernels/sparse.hpp"

namespace pith::kernels {

namespace {

// The buffer stays in the L1 cache.
constexpr std::size_t block = 1024;
using Block = std::array<float, block>;

const float* floats_at(const std::byte* values, DType type, std::size_t begin, std::size_t count,
                       Block& memory) {
  const std::byte* from = values + begin * size_of(type);
  auto* into = reinterpret_cast<std::byte*>(memory.data());
  if (type == DType::f32) {
    std::memcpy(into, from, count * sizeof(float));
  } else {
    cast(into, DType::f32, from, type, count);
  }
  return memory.data();
}

}  // namespace

void convert(const ConvertKernel::Args& args) {
  // One pass without the buffer.
  const bool casts = (args.type == DType::f32) != (args.in_type == DType::f32);
  if (casts && args.divisor == 1 && args.out != args.in) {
    return cast(args.out, args.type, args.in, args.in_type, args.count);
  }
  Block memory;
  for (std::size_t begin = 0; begin < args.count; begin += block) {
    const std::size_t count = std::min(block, args.count - begin);
    floats_at(args.in, args.in_type, begin, count, memory);
    if (args.divisor != 1) {
      for (std::size_t i = 0; i < count; ++i) memory[i] /= args.divisor;
    }
    std::byte* out = args.out + begin * size_of(args.type);
    const auto* from = reinterpret_cast<const std::byte*>(memory.data());
    if (args.type == DType::f32) {
      std::memcpy(out, from, count * sizeof(float));
    } else {
      cast(out, args.type, from, DType::f32, count);
    }
  }
}

// Writes each element to both lists and advances one of them, to avoid a branch.
void split(const SplitKernel::Args& args) {
  std::size_t kept = 0;
  std::size_t lower = 0;
  for (std::size_t i = 0; i < args.count; ++i) {
    const std::uint32_t index = args.indices[i];
    const float value = args.values[i];
    const bool keeps = std::fabs(value) >= args.threshold;
    args.lower_indices[lower] = index;
    args.lower_values[lower] = value;
    args.indices[kept] = index;
    args.values[kept] = value;
    kept += keeps ? 1 : 0;
    lower += keeps ? 0 : 1;
  }
  *args.kept = kept;
  *args.lower = lower;
}

}  // namespace pith::kernels
