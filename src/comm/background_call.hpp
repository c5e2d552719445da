// Calls that run in the background, and the groups in which they were issued.
#pragma once

#include <atomic>
#include <mutex>

#include "comm/call_runner.hpp"
#include "core/engine.hpp"

namespace pith {

// The calls that were issued together; `remaining_` reaches zero once all of them have ended.
class CallGroup {
 public:
  explicit CallGroup(int calls) : remaining_(calls) {}
  bool done() const { return remaining_.load(std::memory_order_acquire) == 0; }
  // The first error of the group. Precondition: done().
  const Error& error() const { return error_; }
  void finish_one(const Error& error);
  // Records the error of something that is not counted in the group, such as a call on a stream.
  void keep(const Error& error);

 private:
  std::atomic<int> remaining_;
  std::mutex mutex_;
  Error error_;
};

class BackgroundCalls;

// Its owner keeps it alive until the group is done; until then only BackgroundCalls changes it.
struct BackgroundCall : Work {
  BackgroundCall(const CallArgs& a, CallGroup& g) : args(a), group(g) {}
  FrameArena& frame_arena() const;
  // Releases the call's compressors and reports its end to the group.
  void conclude(const Error& error);

  CallArgs args;
  CallGroup& group;
  BackgroundCalls* owner = nullptr;  // set when the call is issued
  std::uint32_t number = 0;
  bool driven = false;  // the issuing thread drives the engine, not the progress thread
  RunningCall running;
  CallTiming timing;
  Task<Error> task;
};

}  // namespace pith
