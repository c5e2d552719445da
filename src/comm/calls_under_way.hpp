// How many calls of a communicator are under way, for whoever waits for their end.
#pragma once

#include <atomic>

namespace pith {

struct CallsUnderWay {
  std::atomic<int> active{0};         // in the background and on streams
  std::atomic<int> not_begun{0};      // of these, on streams: they touch nothing, and no memory
  std::atomic<bool> blocking{false};  // a thread is inside a blocking call
  bool inside = false;                // whose algorithm runs; guarded by the engine's token

  bool any() const {
    return blocking.load(std::memory_order_acquire) || active.load(std::memory_order_acquire) > 0;
  }
};

}  // namespace pith
