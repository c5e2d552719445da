// The background calls of a communicator. They begin in the order in which they were issued, a few
// at a time.
#pragma once

#include <vector>

#include "comm/background_call.hpp"
#include "comm/call_runner.hpp"

namespace pith {

class BackgroundCalls {
 public:
  BackgroundCalls(Links& links, CallRunner& runner, RevocationState& revocation)
      : links_(links), runner_(runner), revocation_(revocation) {}

  // `driven`: the caller drives the engine until the call is done.
  void issue(BackgroundCall& call, bool driven);
  FrameArena& frame_arena() { return links_.engine().arena(); }

 private:
  static Task<Error> run(BackgroundCall& call, CallRunner& runner);
  void enqueue(BackgroundCall& call);
  void start_queued();
  void begin(BackgroundCall& call);
  bool is_alone(const BackgroundCall& call) const;
  void begin_timing(BackgroundCall& call) const;
  void end_timing(const BackgroundCall& call);
  void end_without_memory(BackgroundCall& call);
  void end_unbegun(BackgroundCall& call);
  void reap_soon(BackgroundCall& call);
  void reap(BackgroundCall& call);

  Links& links_;
  CallRunner& runner_;
  RevocationState& revocation_;
  std::vector<BackgroundCall*> queued_;
  int running_ = 0;
};

}  // namespace pith
