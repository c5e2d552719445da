// Monotonic time in nanoseconds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

namespace pith {

inline std::uint64_t monotonic_ns() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

// Adds the duration of its lifetime, in seconds, to a sum.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum), begun_ns_(monotonic_ns()) {}
  ~Stopwatch() { sum_ += static_cast<double>(monotonic_ns() - begun_ns_) * 1e-9; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_;
  std::uint64_t begun_ns_;
};

// The limit of a wait: a deadline on monotonic_ns(), or a condition that makes waiting pointless.
struct Patience {
  std::uint64_t deadline_ns = 0;
  std::function<bool()> pointless;  // may be empty

  Patience() = default;
  Patience(std::uint64_t deadline, std::function<bool()> given_up = {})  // NOLINT: a plain deadline
      : deadline_ns(deadline), pointless(std::move(given_up)) {}

  bool over() const { return monotonic_ns() >= deadline_ns || (pointless && pointless()); }
  // A timeout for poll(), short enough that over() is checked in time.
  int nap_ms() const {
    const std::uint64_t now = monotonic_ns();
    const std::uint64_t left_ms = deadline_ns > now ? (deadline_ns - now) / 1000000 + 1 : 0;
    return static_cast<int>(std::min<std::uint64_t>(left_ms, pointless ? 50 : 1000));
  }
};

}  // namespace pith
