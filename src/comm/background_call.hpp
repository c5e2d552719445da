// Calls in the background, and the groups in which they were issued.
#pragma once

#include <atomic>
#include <mutex>

#include "comm/call_runner.hpp"
#include "core/engine.hpp"

namespace pith {

// Calls that were issued together. `remaining` reaches zero once all have ended.
class CallGroup {
 public:
  explicit CallGroup(int calls) : remaining_(calls) {}
  bool done() const { return remaining_.load(std::memory_order_acquire) == 0; }
  // The first error that came. Precondition: done().
  const Error& error() const { return error_; }
  void finish_one(const Error& error);
  // Of a call that was issued with them and is none of them.
  void keep(const Error& error);

 private:
  std::atomic<int> remaining_;
  std::mutex mutex_;
  Error error_;
};

class BackgroundCalls;

// The owner keeps it until its group is done, and leaves all of it to BackgroundCalls.
struct BackgroundCall : Work {
  BackgroundCall(const CallArgs& a, CallGroup& g) : args(a), group(g) {}
  FrameArena& frame_arena() const;
  // Lets go of its compressors, and tells its group.
  void conclude(const Error& error);

  CallArgs args;
  CallGroup& group;
  BackgroundCalls* owner = nullptr;  // once it is issued
  std::uint32_t number = 0;
  bool driven = false;  // the issuing thread drives it: the progress thread is not needed
  RunningCall running;
  Task<Error> task;
};

}  // namespace pith
