// A histogram of magnitudes that is fast to add to.
#pragma once

#include <array>
#include <cstddef>

#include "core/sparse_kernel_args.hpp"

namespace pith::kernels {

// Count and sum of squares of a bin are adjacent float64, updated by one vector addition; counts
// below 2^53 are exact. Neighbouring elements go to different copies, because additions to the same
// bin would wait for each other. Values that are not finite have bins of their own, which are
// dropped at the end.
class MagnitudeCounts {
 public:
  // The calling thread's instance, empty. Allocated at the thread's first call.
  static MagnitudeCounts& of_thread();

  void add(const float* values, std::size_t count);
  // Adds everything to `histogram` and clears this.
  void move_to(MagnitudeHistogram& histogram);

 private:
  struct alignas(16) Bin {
    double squares = 0;
    double count = 0;
  };
  static constexpr std::size_t copies = 4;
  std::array<std::array<Bin, MagnitudeHistogram::bins>, copies> bins_{};
};

}  // namespace pith::kernels
