// Cancels, from another thread, this rank's part in making a communicator. Code that waits for
// other ranks polls it.
#pragma once

#include <fmt/format.h>

#include <atomic>

#include "core/error.hpp"

namespace pith {

class Cancellation {
 public:
  explicit Cancellation(int rank) : rank_(rank) {}
  void cancel() { cancelled_.store(true, std::memory_order_release); }
  // Empty until cancelled.
  Error error() const {
    if (!cancelled_.load(std::memory_order_acquire)) return {};
    return {Code::remote, fmt::format("rank {} aborted the communicator", rank_), rank_};
  }

 private:
  const int rank_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace pith
