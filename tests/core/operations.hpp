// A receiver and a slot owner whose every move a test can see.
#pragma once

#include <coroutine>
#include <cstdint>
#include <string>
#include <vector>

#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "core/task.hpp"

namespace pith::test {

// What a coroutine of these tests takes as its first parameter.
struct Strand {
  FrameArena arena;
  Scheduler scheduler;
  FrameArena& frame_arena() { return arena; }
  void run() {
    while (scheduler.run_ready()) {
    }
  }
};

// Where a coroutine can be suspended until a test resumes it with a result.
struct Pause {
  std::coroutine_handle<> waiter;
  Error result;
};

class Paused {
 public:
  explicit Paused(Pause& pause) : pause_(pause) {}
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> handle) { pause_.waiter = handle; }
  Error await_resume() const { return pause_.result; }

 private:
  Pause& pause_;
};

// Slots that count how often each was given back.
class Slots final : public SlotOwner {
 public:
  void release_slot(int peer, std::uint64_t slot) override {
    released.push_back(slot);
    released_peer = peer;
  }
  std::vector<std::uint64_t> released;
  int released_peer = -1;
};

}  // namespace pith::test
