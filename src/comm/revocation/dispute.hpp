// Detects ranks that make different calls under one number, by messages of a call that this rank is
// not in. The control plane finds out who disagrees about what; this class waits for its answer.
#pragma once

#include <cstdint>
#include <mutex>

#include "comm/calls_under_way.hpp"
#include "comm/comm_identity.hpp"
#include "comm/links.hpp"
#include "control/call_recorder.hpp"

namespace pith {

class Dispute {
 public:
  Dispute(Links& links, const CallsUnderWay& calls, const CallRecorder& recorder,
          const CommIdentity& who);

  // Looks for messages of calls that have ended here: their sender was in another call. Called with
  // the token, after the call. Returns the error for which the communicator is revoked, if it is.
  Error check_left_over(std::uint32_t call);
  // The same for any thread, since a peer's message may arrive after the last call has ended here.
  void look_for_left_over();
  // The error to use if the control plane gave no answer in time. Called at regular intervals.
  Error overdue(std::uint64_t now_ns);

 private:
  void begin(int peer, std::uint32_t call);

  Links& links_;
  const CallsUnderWay& calls_;
  const CallRecorder& recorder_;
  const CommIdentity& who_;
  std::mutex mutex_;
  Error error_;  // used if no better one arrives
  std::uint64_t since_ns_ = 0;
};

}  // namespace pith
