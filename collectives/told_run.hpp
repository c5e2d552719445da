// Calls in a row by one algorithm that a rank makes and tells others of as one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith {

// The mean of all but the first, which also waits for what ranks are behind with. The longest
// counts: a rank waits in one call for the data of several.
struct ToldRun {
  std::uint32_t calls = 0;
  std::size_t bytes = 0;
  double seconds = 0;  // without the first call

  void add(std::size_t bytes_of_call, double seconds_of_call) {
    if (calls++ > 0) seconds += seconds_of_call;
    bytes += bytes_of_call;
  }
  // 0: there were too few.
  double mean_s() const { return calls < 2 ? 0 : seconds / (calls - 1); }
};

}  // namespace pith
