// A histogram of magnitudes that is fast to add to.
#pragma once

#include <array>
#include <cstddef>

#include "core/sparse_kernel_args.hpp"

namespace pith::kernels {

// Count and sum of squares of a bin lie together, as two float64 that one addition changes; counts
// below 2^53 are exact. Neighbouring elements go to different copies: additions to one bin would
// wait for each other. What is not finite lands in bins of its own, which are dropped at the end.
class MagnitudeCounts {
 public:
  // The calling thread's; empty. Allocated at the thread's first call.
  static MagnitudeCounts& of_thread();

  void add(const float* values, std::size_t count);
  // Adds all to `histogram` and is empty again.
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
