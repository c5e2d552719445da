// Time in nanoseconds: monotonic, or the simulator's.
#pragma once

#include <chrono>
#include <cstdint>

namespace pith {

inline std::uint64_t monotonic_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace pith
