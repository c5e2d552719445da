// The step as compressed calls make it: compress/topk_selector.hpp, the vector as one range.
#pragma once

#include "compress/compressor.hpp"
#include "core/frame_arena.hpp"
#include "kernels/host_compute.hpp"
#include "perf/compress/step.hpp"

namespace pith_bench {

class PithStep {
 public:
  PithStep(std::size_t count, double density);
  // Takes over the accumulator and what the steps before have taught.
  void load(const Step& step);
  // From a residual of zeros where nothing was loaded; without a gradient where the accumulator
  // holds it.
  void run(const Step& step);
  void store(Step& step);
  // Of the last step, by rising index; the values are float32.
  pith::SparseList pairs();

 private:
  pith::HostCompute host_;
  pith::FrameArena frames_;
  pith::Compressor compressor_;
  std::uint32_t calls_ = 0;
};

}  // namespace pith_bench
