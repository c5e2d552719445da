// Momentum correction. Bit-identical to src/kernels/elections/elections_scalar.cpp.
#pragma once

#include "cuda/kernels/numbers.hpp"

namespace pith::cuda {

struct MomentumArgs {
  float* velocity;
  const std::byte* gradient;  // or null
  std::size_t count;
  float momentum;
  float factor;
};

template <class T>
struct CorrectMomentum {
  using Args = MomentumArgs;
  static constexpr unsigned threads = 256;
  struct Shared {};

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    const bool aligned = misalignment(args.gradient, sizeof(T)) == 0;
    block.each([&](unsigned thread) {
      for (std::size_t i = std::size_t{block.index()} * threads + thread; i < args.count;
           i += std::size_t{block.count()} * threads) {
        float old = args.velocity[i];
        if (magnitude_of(old) >= float_infinity) old = 0;
        float given = 0;
        if (args.gradient) given = widen(load_element<T>(args.gradient, i, aligned));
        args.velocity[i] = args.momentum * old + args.factor * given;
      }
    });
  }
};

}  // namespace pith::cuda
