// The exact k-th largest magnitude of a list; magnitudes are float32 bits without sign.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith::kernels {

struct KthMagnitude {
  std::uint32_t bits = 0;
  std::size_t above = 0;  // elements of larger magnitude, fewer than k
};

// Magnitudes from `low` to `high` inclusive.
struct Bracket {
  std::uint32_t low = 0;
  std::uint32_t high = 0x7fffffffu;
};

struct BracketCounts {
  std::size_t above = 0;   // elements above the bracket
  std::size_t inside = 0;  // elements in it
  bool complete = false;   // all those inside were collected
};

// One pass over a list: counts, and collects into `candidates` what lies in the bracket, until
// there is no room for another vector.
using CollectFunction = BracketCounts (*)(const float* values, std::size_t count, Bracket bracket,
                                          std::uint32_t* candidates, std::size_t room);

// Precondition: 1 <= k <= count. Each thread allocates some 1.2 MB of scratch at its first call.
KthMagnitude kth_magnitude(const float* values, std::size_t count, std::size_t k,
                           CollectFunction collect);

}  // namespace pith::kernels
