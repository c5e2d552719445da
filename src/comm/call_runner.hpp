// What every call of a communicator goes through, whoever waits for it: it takes its number, is
// told to the flight recorder and the trace, runs its kind's coroutine, and ends.
//
// Blocking calls are run here to their end; those in the background (background_calls.hpp) and on
// CUDA streams (streams/stream_execution.hpp) take the same steps one by one.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/call_args.hpp"
#include "comm/call_journal.hpp"
#include "comm/call_numbers.hpp"
#include "comm/call_tasks.hpp"
#include "comm/calls_under_way.hpp"
#include "comm/links.hpp"
#include "comm/revocation/revocation_state.hpp"

namespace pith {

class CallRunner {
 public:
  CallRunner(Links& links, CallsUnderWay& calls, CallRecorder& recorder,
             RevocationState& revocation);

  CallNumbers& numbers() { return numbers_; }
  CallTasks& tasks() { return tasks_; }
  CallJournal& journal() { return journal_; }
  CallsUnderWay& under_way() { return calls_; }

  // Runs the call to its end on this thread. A collective of one rank is a copy.
  Error run(CollectiveArgs& args) {
    tasks_.complete(args);
    return is_alone(args) ? run_alone(args) : run_to_end(args);
  }
  template <class Args>
  Error run(Args& args) {
    tasks_.complete(args);
    return run_to_end(args);
  }
  // Whether nothing but a copy is to be made of it.
  bool is_alone(const CollectiveArgs& args) const {
    return links_.size() == 1 && !args.factor.used;
  }
  Error run_alone(const CollectiveArgs& args);

  // The steps of a call that has its number, with the engine's token. `context`: of the call's
  // memory kind.
  template <class Args>
  void begin(RunningCall& running, std::uint32_t number, const Args& args,
             const CallContext& context) {
    const std::uint64_t digest = digest_of(args);
    journal_.begin(running, number, digest, args);
    running.call.emplace(context, number, digest);
  }
  void begin(RunningCall& running, std::uint32_t number, const CallArgs& args,
             const CallContext& context);
  // What its task, or the want of one, has come to: news to the other ranks that wait for us.
  Error conclude(const RunningCall& running, const CallArgs& args, const Error& error) const;
  void end(RunningCall& running, bool well) {
    journal_.end(running, well);
    running.messages = {};  // the next call that uses the memory may be of another kind
    running.call.reset();
  }
  // A call that is refused, or has not begun: a compressed one's gradients are kept.
  void refuse(std::uint32_t number, const CallArgs& args);
  // An output that has no room for the result is this rank's error alone: the call has ended well.
  bool is_over(const Error& error) const { return !error || !links_.state().revoked; }

 private:
  template <class Args>
  Error run_to_end(Args& args);

  Links& links_;
  CallsUnderWay& calls_;
  RevocationState& revocation_;
  CallNumbers numbers_;
  CallTasks tasks_;
  CallJournal journal_;
};

}  // namespace pith
