// What a thread does in long waits: it pauses between two polls of what cannot wake it, and asks
// whether the wait shall end.
#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "core/clock.hpp"

namespace pith {

// Of pithSetInterrupt. Each thread has its own, which nothing has to destroy.
struct Interrupt {
  static constexpr std::uint64_t pause_ns = 50'000'000;

  int (*check)(void* context) = nullptr;  // may take long, and use any function of pith.h
  void* context = nullptr;
  std::uint64_t asked_ns = 0;
  const std::function<void()>* cancel = nullptr;  // ends what the thread makes, if anything

  static Interrupt& of_this_thread() {
    static constinit thread_local Interrupt one;
    return one;
  }
  bool is_due() const { return check && monotonic_ns() - asked_ns >= pause_ns; }
  bool ask() {
    asked_ns = monotonic_ns();
    if (check(context) == 0) return false;
    if (cancel) (*cancel)();
    return true;
  }
};

// Whether this thread's wait shall end. Precondition: the thread has no token and no lock.
inline bool is_interrupted() {
  Interrupt& interrupt = Interrupt::of_this_thread();
  return interrupt.is_due() && interrupt.ask();
}

// While it lives, this thread makes something that `cancel` ends.
class Cancellable {
 public:
  explicit Cancellable(std::function<void()> cancel)
      : cancel_(std::move(cancel)),
        outer_(std::exchange(Interrupt::of_this_thread().cancel, &cancel_)) {}
  ~Cancellable() { Interrupt::of_this_thread().cancel = outer_; }
  Cancellable(const Cancellable&) = delete;
  Cancellable& operator=(const Cancellable&) = delete;

 private:
  const std::function<void()> cancel_;
  const std::function<void()>* const outer_;
};

// Between two looks of a thread that spins: leaves the core's other thread its time.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Yields while an event may come soon, then sleeps, so that a long wait does not occupy a core.
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
