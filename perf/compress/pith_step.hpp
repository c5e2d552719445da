// The step as compressed calls make it: compress/topk_selector.hpp, with the vector as one range.
#pragma once

#include "compress/compressor.hpp"
#include "core/frame_arena.hpp"
#include "kernels/host_compute.hpp"
#include "perf/compress/step.hpp"

namespace pith_bench {

class PithStep {
 public:
  PithStep(std::size_t count, double density);
  // Copies the accumulator and the forecast of earlier steps from `step`.
  void load(const Step& step);
  // Starts from a zero residual if nothing was loaded. Without a gradient the accumulator contains
  // it.
  void run(const Step& step);
  void store(Step& step);
  // Of the last step, by ascending index; values are float32.
  pith::SparseList pairs();

 private:
  pith::HostCompute host_;
  pith::FrameArena frames_;
  pith::Compressor compressor_;
  std::uint32_t calls_ = 0;
};

}  // namespace pith_bench
