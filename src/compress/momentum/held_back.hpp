// The low-pass filter of residuals [ScaleCom, Chen et al., NeurIPS 2020, algorithm 1]: the part of
// one rank's residual that a call neither looks at nor sends.
//
// A call elects and sends from beta * residual + gradient, and 1 - beta of the residual waits aside
// until it ends, however it ends. Large steps make gradients of one rank noisy; so filtered, what
// they leave behind weighs less than what many calls agree on, and residuals of ranks, with them
// the elements that a leader elects for all, stay alike. The paper's memory m, with
// m' = m + beta (gradient - sent), is beta times this residual, which thus is, as for every scheme,
// what calls were given and have not sent.
#pragma once

#include <algorithm>
#include <cstddef>

#include "compress/accumulator.hpp"
#include "core/sparse/momentum_kernel.hpp"

namespace pith {

class HeldBack {
 public:
  // `part`: 1 - beta. Throws as Accumulator does.
  HeldBack(float part, std::size_t count, DeviceVectors* device)
      : part_(part), memory_(count, device) {}

  Accumulator& memory() { return memory_; }

  void begin() { held_ = released_ = 0; }
  bool is_whole() const { return held_ == memory_.count(); }
  bool is_released() const { return released_ == held_; }
  // Moves the part of the next elements, at most so many, from the residual, which is the whole
  // vector, to here. `queue` works on both; a device may refuse, and then nothing has moved.
  Fence hold(Compute& queue, float* residual, std::size_t most) {
    const std::size_t count = std::min(most, memory_.count() - held_);
    float* const from = residual + held_;
    float* const to = memory_.data() + held_;
    queue.run<MomentumKernel>({to, bytes(from), DType::f32, count, 0, part_});
    const Fence fence = queue.run<MomentumKernel>({from, bytes(to), DType::f32, count, 1, -1});
    held_ += count;
    return fence;
  }
  // Moves the next ones back, if any are left.
  Fence release(Compute& queue, float* residual, std::size_t most) {
    if (is_released()) return Fence();
    const std::size_t count = std::min(most, held_ - released_);
    float* const to = residual + released_;
    const float* const from = memory_.data() + released_;
    const Fence fence = queue.run<MomentumKernel>({to, bytes(from), DType::f32, count, 1, 1});
    released_ += count;
    return fence;
  }

 private:
  static const std::byte* bytes(const float* values) {
    return reinterpret_cast<const std::byte*>(values);
  }

  float part_;
  Accumulator memory_;
  std::size_t held_ = 0;      // of this call's elements, from the first on
  std::size_t released_ = 0;  // of those
};

}  // namespace pith
