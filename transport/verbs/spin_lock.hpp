// A lock for a few instructions that must not allocate or sleep in the system, as in a callback
// inside free().
#pragma once

#include <sched.h>

#include <atomic>

namespace pith {

class SpinLock {
 public:
  void lock() noexcept {
    while (held_.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  void unlock() noexcept { held_.clear(std::memory_order_release); }

 private:
  std::atomic_flag held_ = ATOMIC_FLAG_INIT;
};

}  // namespace pith
