// When the demo has to end, finished or not: one time for all of its parts.
#pragma once

#include <chrono>
#include <stdexcept>

namespace pith::demo {

// A part of the demo was ended because the time was over.
struct TimeOver : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Deadline {
 public:
  // This many seconds from now.
  explicit Deadline(double seconds)
      : seconds_(seconds),
        end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  double seconds() const { return seconds_; }  // as given to the constructor
  double left_s() const { return std::chrono::duration<double>(end_ - Clock::now()).count(); }
  bool is_over() const { return left_s() <= 0.0; }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_;
  Clock::time_point end_;
};

}  // namespace pith::demo
