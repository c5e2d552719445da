// Between two looks at something that wakes nobody: yields while it may come soon, then naps, so
// that a long wait costs no core.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace pith {

// `idle_turns`: looks in vain so far.
inline void pause(unsigned idle_turns) {
  constexpr unsigned yields = 2000;
  if (idle_turns < yields) {
    sched_yield();
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace pith
