// Where a call works on its vectors: on the queue of their device, or at once, on the host. What
// the host must know is awaited, which costs nothing where it is there at once.
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

// Suspends until the queue has passed a fence; without a queue there is nothing to wait for. Throws
// where the queue has failed: whoever went on would take what lies there for counts and indices.
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
  // `host`: memory that the device reaches, and kernels that run at once.
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

// Of a task that waits for fences only, on host memory. Such tasks fail where memory runs out.
inline void run_at_once(Task<Error> task) {
  task.handle().resume();
  assert(task.done());
  if (task.take()) throw std::bad_alloc();
}

}  // namespace pith
