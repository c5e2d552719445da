// The kernel of momentum correction.
#pragma once

#include <cstddef>

#include "core/compute.hpp"
#include "core/dtype.hpp"

namespace pith {

// velocity[i] = momentum * velocity[i] + factor * gradient[i] in float32, every operation rounded.
// A velocity that is not finite is read as zero, so that one bad gradient does not stay for ever.
struct MomentumKernel {
  struct Args {
    float* velocity;
    const std::byte* gradient;  // null: zeros
    DType type;                 // of the gradient: f32, f16 or bf16
    std::size_t count;
    float momentum;
    float factor;
  };
  static std::size_t work_bytes(const Args& args) { return 12 * args.count; }
  static KernelNote note(const Args& args) {
    const auto* memory = reinterpret_cast<const std::byte*>(args.velocity);
    return {"momentum",
            {{{memory, 4 * args.count}}},
            {{{args.gradient, args.gradient ? args.count * size_of(args.type) : 0}}}};
  }
};

}  // namespace pith
