// Where a call works on its vectors: on their device's queue, or immediately on the host. Results
// that the host needs are awaited, which costs nothing if they are already there.
#pragma once

#include <cassert>
#include <coroutine>
#include <utility>

#include "core/failed_queue.hpp"
#include "core/failure.hpp"
#include "core/frame_arena.hpp"
#include "core/scheduler.hpp"
#include "core/task.hpp"

namespace pith {

// Suspends until the queue has reached a fence; without a queue it does not suspend. Throws if the
// queue has failed, since the results would be garbage.
class FenceAwaiter {
 public:
  FenceAwaiter(Compute* queue, Scheduler* scheduler, Fence fence)
      : queue_(queue), scheduler_(scheduler) {
    wait_.fence = fence;
  }
  bool await_ready() const { return !queue_ || queue_->reached(wait_.fence); }
  void await_suspend(std::coroutine_handle<> waiter) {
    waiter_ = waiter;
    wait_.owner = this;
    wait_.reached = [](FenceWait& wait) {
      auto& self = *static_cast<FenceAwaiter*>(wait.owner);
      self.scheduler_->make_ready(self.waiter_);
    };
    queue_->notify(wait_);
  }
  void await_resume() const {
    if (queue_ && has_failed(*queue_)) [[unlikely]]
      throw Failure(Error(Code::cuda, "the device has failed"));
  }

 private:
  Compute* queue_;
  Scheduler* scheduler_;
  FenceWait wait_;
  std::coroutine_handle<> waiter_;
};
static_assert(SafeAwaiter<FenceAwaiter>);

class VectorQueue {
 public:
  VectorQueue(Compute& host, FrameArena& arena) : vectors_(&host), host_(&host), arena_(&arena) {}
  // `host`: pinned memory, and kernels that run immediately.
  VectorQueue(Compute& device, Compute& host, Scheduler& scheduler, FrameArena& arena)
      : vectors_(&device), host_(&host), scheduler_(&scheduler), arena_(&arena) {}

  bool on_device() const { return scheduler_ != nullptr; }
  Compute& vectors() const { return *vectors_; }
  Compute& host() const { return *host_; }
  FrameArena& frame_arena() const { return *arena_; }
  template <class Kernel>
  Fence run(const typename Kernel::Args& args) const {
    return vectors_->run<Kernel>(args);
  }
  FenceAwaiter until(Fence fence) const {
    return FenceAwaiter(on_device() ? vectors_ : nullptr, scheduler_, fence);
  }

 private:
  Compute* vectors_;
  Compute* host_;
  Scheduler* scheduler_ = nullptr;
  FrameArena* arena_;
};

// Runs a task that waits only for fences, on host memory. Such tasks fail only if memory runs out.
inline void run_at_once(Task<Error> task) {
  task.handle().resume();
  assert(task.done());
  if (task.take()) throw std::bad_alloc();
}

}  // namespace pith
