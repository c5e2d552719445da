// A pause between two polls of something that cannot wake the thread: yields while an event may
// come soon, then sleeps, so that a long wait does not occupy a core.
#pragma once

#include <sched.h>

#include <chrono>
#include <thread>

namespace pith {

// `idle_turns`: polls without success so far.
inline void pause(unsigned idle_turns) {
  constexpr unsigned yields = 2000;
  if (idle_turns < yields) {
    sched_yield();
    return;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace pith
