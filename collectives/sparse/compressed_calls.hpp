// The clocks of a communicator's compressed calls on this rank: the vectors of a training step may
// have calls of their own, one after the other or side by side.
//
// Guarded by the engine's token.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pith {

class CompressedCalls {
 public:
  void begin(std::size_t elements, std::uint64_t now_ns) {
    pass(now_ns);
    elements_ += elements;
    ++in_progress_;
  }
  void end(std::uint64_t now_ns) {
    pass(now_ns);
    --in_progress_;
  }
  // Of all calls that have begun.
  std::uint64_t elements() const { return elements_; }
  // The time in which calls were in progress.
  double busy_seconds(std::uint64_t now_ns) {
    pass(now_ns);
    return busy_seconds_;
  }
  // Between two moments of a call it grows by the call's own part of the time: calls in progress
  // together are taken to share it evenly, since they share a link.
  double own_seconds(std::uint64_t now_ns) {
    pass(now_ns);
    return own_seconds_;
  }

 private:
  void pass(std::uint64_t now_ns) {
    const double seconds = double(now_ns - last_ns_) * 1e-9;
    if (in_progress_ > 0) {
      busy_seconds_ += seconds;
      own_seconds_ += seconds / in_progress_;
    }
    last_ns_ = now_ns;
  }

  std::uint64_t elements_ = 0;
  std::uint64_t last_ns_ = 0;
  double busy_seconds_ = 0;
  double own_seconds_ = 0;
  int in_progress_ = 0;
};

}  // namespace pith
