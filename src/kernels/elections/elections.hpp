// The kernels of momentum and of draws, on host memory, and their scalar twins.
// core/sparse/momentum_kernel.hpp and draw_kernel.hpp document them.
//
// Velocities and accumulators are aligned to 4 bytes; gradients may start at any byte address. The
// functions are thread-safe, allocate nothing and cannot fail.
#pragma once

#include "core/sparse/draw_kernel.hpp"
#include "core/sparse/momentum_kernel.hpp"

namespace pith::kernels {

void correct_momentum(const MomentumKernel::Args& args);
void draw(const DrawKernel::Args& args);

namespace scalar {

void correct_momentum(const MomentumKernel::Args& args);
void draw(const DrawKernel::Args& args);

}  // namespace scalar

}  // namespace pith::kernels
