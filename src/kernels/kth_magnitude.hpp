// The k-th largest magnitude of a list, exactly; magnitudes are the bits of float32 without sign.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith::kernels {

struct KthMagnitude {
  std::uint32_t bits = 0;
  std::size_t above = 0;  // elements of larger magnitude: less than k
};

// Magnitudes from `low` to `high`, both included.
struct Bracket {
  std::uint32_t low = 0;
  std::uint32_t high = 0x7fffffffu;
};

struct BracketCounts {
  std::size_t above = 0;   // of the bracket
  std::size_t inside = 0;  // it
  bool complete = false;   // all of those that are inside were collected
};

// One pass over a list: counts, and collects into `candidates` what lies in the bracket, until
// there is no room for a vector.
using CollectFunction = BracketCounts (*)(const float* values, std::size_t count, Bracket bracket,
                                          std::uint32_t* candidates, std::size_t room);

// 1 <= k <= count. Its scratch of some 1.2 MB is allocated at a thread's first call.
KthMagnitude kth_magnitude(const float* values, std::size_t count, std::size_t k,
                           CollectFunction collect);

}  // namespace pith::kernels
