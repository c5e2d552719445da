// A sample of what a pass would leave: a few lines of the vector, one element per thread.
#pragma once

#include "cuda/kernels/numbers.hpp"

namespace pith::cuda {

inline constexpr std::size_t sample_line = 16;

struct SampleArgs {
  const float* accumulator;
  const std::byte* gradient;  // added, if not null
  std::size_t lines;
  std::size_t stride;  // in elements
  float* magnitudes;
  bool fresh;
};

template <class Gradient>
struct Sample {
  using Args = SampleArgs;
  static constexpr unsigned threads = 256;
  static constexpr bool adds = sizeof(Gradient) > 1;
  struct Shared {};

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    const bool aligned = misalignment(args.gradient, sizeof(Gradient)) == 0;
    block.each([&](unsigned thread) {
      const std::size_t out = std::size_t{block.index()} * threads + thread;
      if (out >= args.lines * sample_line) return;
      const std::size_t i = out / sample_line * args.stride + out % sample_line;
      float sum = args.fresh ? 0.0f : args.accumulator[i];
      if constexpr (adds) sum += widen(load_element<Gradient>(args.gradient, i, aligned));
      const std::uint32_t magnitude = magnitude_of(sum);
      args.magnitudes[out] = magnitude >= float_infinity ? 0.0f : bits_as<float>(magnitude);
    });
  }
};

}  // namespace pith::cuda
