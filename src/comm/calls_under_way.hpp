// Counts the unfinished calls of a communicator, for threads that wait until they have ended.
#pragma once

#include <atomic>

namespace pith {

struct CallsUnderWay {
  std::atomic<int> active{0};         // in the background and on streams
  std::atomic<int> not_begun{0};      // of `active`, on streams: they touch no memory yet
  std::atomic<bool> blocking{false};  // a thread is inside a blocking call
  bool inside = false;                // its algorithm runs; guarded by the engine's token

  bool any() const {
    return blocking.load(std::memory_order_acquire) || active.load(std::memory_order_acquire) > 0;
  }
};

}  // namespace pith
