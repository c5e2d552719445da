// Records the begin and end of calls in the flight recorder, and in the trace if one is wanted.
// Functions need the engine's token unless they say otherwise.
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/call_args.hpp"
#include "comm/links.hpp"
#include "control/call_recorder.hpp"

namespace pith {

// A call that has begun and not ended.
struct RunningCall {
  std::optional<Call> call;
  CallRecorder::Batch messages;  // point-to-point messages, as the recorder knows them
};

class CallJournal {
 public:
  CallJournal(Links& links, CallRecorder& recorder) : links_(links), recorder_(recorder) {}

  void begin(RunningCall& running, std::uint32_t number, std::uint64_t digest,
             const CollectiveArgs& args);
  void begin(RunningCall& running, std::uint32_t number, std::uint64_t digest,
             const CompressedArgs& args);
  void begin(RunningCall& running, std::uint32_t number, std::uint64_t digest,
             const PairArgs& args);
  void end(const RunningCall& running, bool well) {
    const std::uint32_t number = running.call->number();
    if (running.messages.count != 0) {
      recorder_.end(running.messages, well);
    } else {
      recorder_.end(number, well);
    }
    if (CallTrace* const trace = links_.trace()) trace->end(number, well);
  }

  // A split has a number but no task: the ranks agree on it through the control plane. Called
  // without the token, by the thread that makes the split, while background calls may be recorded.
  void begin_split(std::uint32_t number);
  void end_split(std::uint32_t number, bool well);
  // Likewise for a growth, which its agreement describes to ranks in other calls: it is not begun
  // here, only counted when it has ended well.
  void count_growth(std::uint32_t number) { end_split(number, true); }

  // Any thread. All calls up to this one have ended well on this rank.
  std::uint64_t last_completed() const { return recorder_.last_completed(); }

 private:
  Links& links_;
  CallRecorder& recorder_;
};

}  // namespace pith
