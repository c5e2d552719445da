// The steps of every call of a communicator: it takes a number, is recorded in the flight recorder
// and the trace, runs the coroutine of its kind, and ends.
//
// Blocking calls run here from begin to end. Background calls (background_calls.hpp) and calls on
// CUDA streams (streams/stream_execution.hpp) take the same steps one by one.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/call_args.hpp"
#include "comm/call_journal.hpp"
#include "comm/call_numbers.hpp"
#include "comm/call_tasks.hpp"
#include "comm/calls_under_way.hpp"
#include "comm/choice_learning.hpp"
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
  CallPlanner& planner() { return planner_; }
  const CallPlanner& planner() const { return planner_; }
  ChoiceLearning& learning() { return learning_; }
  CallsUnderWay& under_way() { return calls_; }

  // Runs the call to its end on this thread. With one rank a collective is a copy.
  Error run(CollectiveArgs& args) {
    tasks_.complete(args);
    return is_alone(args) ? run_alone(args) : run_to_end(args);
  }
  template <class Args>
  Error run(Args& args) {
    tasks_.complete(args);
    return run_to_end(args);
  }
  // Whether the call is only a copy: there is one rank, with a result and nothing to compute.
  bool is_alone(const CollectiveArgs& args) const {
    return links_.size() == 1 && !args.factor.used && !args.wire.is_used() &&
           !is_logical(args.op) && args.collective != Collective::exscan;
  }
  Error run_alone(const CollectiveArgs& args);

  // The steps of a call that has its number, with the engine's token. `context`: for the kind of
  // memory that the call uses.
  template <class Args>
  void begin(RunningCall& running, std::uint32_t number, const Args& args,
             const CallContext& context) {
    const std::uint64_t digest = digest_of(args);
    journal_.begin(running, number, digest, args);
    running.call.emplace(context, number, digest);
  }
  void begin(RunningCall& running, std::uint32_t number, const CallArgs& args,
             const CallContext& context);
  // Returns the result of the call from `error`, that of its task or of the failure to create one.
  // An error is reported to the other ranks, which wait for this one.
  Error conclude(const RunningCall& running, const CallArgs& args, const Error& error) const;
  void end(RunningCall& running, bool well) {
    journal_.end(running, well);
    running.messages = {};  // the next call that uses the memory may be of another kind
    running.call.reset();
  }
  // For a call that is refused or has not begun: a compressed call keeps its gradients.
  void refuse(std::uint32_t number, const CallArgs& args);
  // Whether the call has ended well. An error that revoked nothing (a sparse output that is too
  // small) is this rank's alone.
  bool is_over(const Error& error) const { return !error || !links_.state().revoked; }

 private:
  template <class Args>
  Error run_to_end(Args& args);
  template <class Args>
  Error make(Call& call, const Args& args);
  void wait_for_epoch(std::uint32_t number);
  void end_calls_now();
  void refuse_from_now_on(const Error& error);

  Links& links_;
  CallsUnderWay& calls_;
  RevocationState& revocation_;
  CallPlanner planner_;
  ChoiceLearning learning_;
  CallNumbers numbers_;
  CallTasks tasks_;
  CallJournal journal_;
};

}  // namespace pith
