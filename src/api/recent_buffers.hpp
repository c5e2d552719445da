// Buffers that were host memory a moment ago. Whether a CUDA driver has been loaded since is the
// loader's to say, whose lock takes a tenth of a call of 8 bytes.
#pragma once

#include <time.h>

#include <cstdint>

namespace pith::api {

// Monotonic time at the system's last tick, 1 to 10 ms ago; takes a sixth of the time of a full
// one.
inline std::uint64_t last_tick_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// Used by the thread that issues the communicator's calls.
class RecentBuffers {
 public:
  // Whether the last add() was for these, in this tick. A driver takes longer than a tick to be
  // loaded and initialised, let alone to give out these very addresses.
  bool has(const void* send, const void* recv, std::uint64_t tick) const {
    return tick == tick_ && send == send_ && recv == recv_;
  }
  // `tick`: from before it was found that there is no driver.
  void add(const void* send, const void* recv, std::uint64_t tick) {
    send_ = send;
    recv_ = recv;
    tick_ = tick;
  }

 private:
  const void* send_ = nullptr;
  const void* recv_ = nullptr;
  std::uint64_t tick_ = 0;
};

}  // namespace pith::api
