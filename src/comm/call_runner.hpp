// What every call of a communicator goes through, whoever waits for it: it takes its number, is
// told to the flight recorder and the trace, runs its kind's coroutine, and ends.
//
// Blocking calls are run here to their end; those in the background (background_calls.hpp) and on
// CUDA streams (stream_calls.hpp) take the same steps one by one.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "collectives/call_args.hpp"
#include "collectives/pair_windows.hpp"
#include "comm/calls_under_way.hpp"
#include "comm/links.hpp"
#include "comm/pair_numbers.hpp"
#include "comm/revocation_state.hpp"
#include "control/call_recorder.hpp"
#include "core/call_number.hpp"

namespace pith {

// A call that has begun and not ended.
struct RunningCall {
  std::optional<Call> call;
  CallRecorder::Batch messages;  // of pairs, as the recorder knows them
};

class CallRunner {
 public:
  CallRunner(Links& links, CallsUnderWay& calls, CallRecorder& recorder,
             RevocationState& revocation);

  const PairWindows& windows() const { return windows_; }
  CallsUnderWay& under_way() { return calls_; }

  // Runs the call to its end on this thread, after complete(). A collective of one rank is a copy.
  Error run(CollectiveArgs& args) {
    complete(args);
    return is_alone(args) ? run_alone(args) : run_to_end(args);
  }
  template <class Args>
  Error run(Args& args) {
    complete(args);
    return run_to_end(args);
  }
  // Whether nothing but a copy is to be made of it.
  bool is_alone(const CollectiveArgs& args) const {
    return links_.size() == 1 && !args.factor.used;
  }
  template <class Args>
  bool is_alone(const Args&) const {
    return false;
  }
  Error run_alone(const CollectiveArgs& args);

  // Fills in what the caller leaves to the communicator.
  void complete(CollectiveArgs& args) const;
  void complete(CompressedArgs& args) const { args.tuning = links_.tuning(); }
  void complete(PairArgs& args) const { args.chunk_bytes = links_.tuning().chunk_bytes; }
  void complete(CallArgs& args) const;

  // By the thread that issues the calls, in the order that is that of all ranks.
  std::uint32_t take_number() {
    const std::uint32_t number = next_call_.load(std::memory_order_relaxed);
    next_call_.store(next_number(number), std::memory_order_relaxed);
    return number;
  }
  // A split has a number as well, and no task: the ranks agree on it by the control plane.
  std::uint32_t begin_split();
  void end_split(std::uint32_t number, bool well);
  std::uint32_t next_call() const { return next_call_.load(std::memory_order_relaxed); }
  template <class Args>
  std::uint32_t number(const Args&) {
    return take_number();
  }
  // Messages of pairs do not count among the calls: other ranks may know nothing of them.
  std::uint32_t number(PairArgs& args) {
    pairs_.take(args.messages);
    return 0;
  }
  std::uint32_t number(CallArgs& args);

  // With the engine's token, from here on. `context`: of the call's memory kind.
  template <class Args>
  void begin(RunningCall& running, std::uint32_t number, const Args& args,
             const CallContext& context) {
    const std::uint64_t digest = digest_of(args);
    record(running, number, digest, args);
    running.call.emplace(context, number, digest);
  }
  void begin(RunningCall& running, std::uint32_t number, const CallArgs& args,
             const CallContext& context);
  // Null: there is no memory for it.
  template <class Args>
  Task<Error> start(RunningCall& running, const Args& args);
  // What its task, or the want of one, has come to: news to the other ranks that wait for us.
  Error conclude(const RunningCall& running, const CallArgs& args, const Error& error) const;
  void end(RunningCall& running, bool well);
  // A call that is refused, or has not begun: a compressed one's gradients are kept.
  void refuse(std::uint32_t number, const CallArgs& args);
  // An output that has no room for the result is this rank's error alone: the call has ended well.
  bool is_over(const Error& error) const { return !error || !links_.state().revoked; }

 private:
  template <class Args>
  Error run_to_end(Args& args);
  const Algorithm& algorithm_of(const CollectiveArgs& args) const {
    return links_.model().algorithm(args.collective, args.count * size_of(args.type));
  }
  void record(RunningCall& running, std::uint32_t number, std::uint64_t digest,
              const CollectiveArgs& args);
  void record(RunningCall& running, std::uint32_t number, std::uint64_t digest,
              const CompressedArgs& args);
  void record(RunningCall& running, std::uint32_t number, std::uint64_t digest,
              const PairArgs& args);
  Task<Error> task_of(Call& call, const CollectiveArgs& args);
  Task<Error> task_of(Call& call, const CompressedArgs& args);
  Task<Error> task_of(Call& call, const PairArgs& args);
  Task<Error> task_of(Call& call, const CallArgs& args);

  Links& links_;
  CallsUnderWay& calls_;
  CallRecorder& recorder_;
  RevocationState& revocation_;
  std::atomic<std::uint32_t> next_call_{1};
  PairNumbers pairs_;
  PairWindows windows_;
};

}  // namespace pith
