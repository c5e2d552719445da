// The ready queue of one thread of control: of an engine, or of the simulator for all its ranks.
#pragma once

#include <coroutine>
#include <cstdint>
#include <vector>

#include "core/operation.hpp"

namespace pith {

class Scheduler {
 public:
  // Told of the ends of operations that had to wait; may be null.
  OperationObserver* observer = nullptr;

  void make_ready(std::coroutine_handle<> handle) {
    if (count_ == ring_.size()) grow();
    ring_[(head_ + count_++) & (ring_.size() - 1)] = handle;
  }

  // Makes the waiter ready once all operations that it waits for are complete.
  void complete(Operation& operation) {
    if (observer) [[unlikely]]
      observer->ends(operation);
    if (operation.remaining && --*operation.remaining != 0) return;
    make_ready(operation.waiter);
  }

  // Resumes the coroutines that are ready now. Those that become ready meanwhile run next time.
  bool run_ready() {
    const std::size_t batch = count_;
    for (std::size_t i = 0; i < batch; ++i) {
      const std::coroutine_handle<> handle = ring_[head_];
      head_ = (head_ + 1) & (ring_.size() - 1);
      --count_;
      handle.resume();
    }
    return batch != 0;
  }

  // Resumes the first ready coroutine only, for callers that count resumptions.
  bool run_one() {
    if (count_ == 0) return false;
    const std::coroutine_handle<> handle = ring_[head_];
    head_ = (head_ + 1) & (ring_.size() - 1);
    --count_;
    handle.resume();
    return true;
  }

  bool idle() const { return count_ == 0; }

 private:
  void grow();

  std::vector<std::coroutine_handle<>> ring_ = std::vector<std::coroutine_handle<>>(64);
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

inline void Scheduler::grow() {
  std::vector<std::coroutine_handle<>> larger(ring_.size() * 2);
  for (std::size_t i = 0; i < count_; ++i) larger[i] = ring_[(head_ + i) & (ring_.size() - 1)];
  ring_.swap(larger);
  head_ = 0;
}

}  // namespace pith
