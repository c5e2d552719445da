// Ranks that are in different calls under one number: found by the messages of a call that nobody
// here is in. The control plane finds out who disagrees about what; this waits for its answer.
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

  // Messages of calls that have ended here show a peer that was in another one. With the token,
  // after the call: the error that the communicator is revoked for, if it comes to that.
  Error check_left_over(std::uint32_t call);
  // Any thread. A peer's message may come after the last call has ended here.
  void look_for_left_over();
  // An error where nobody could tell more within the time. By the thread that looks regularly.
  Error overdue(std::uint64_t now_ns);

 private:
  void begin(int peer, std::uint32_t call);

  Links& links_;
  const CallsUnderWay& calls_;
  const CallRecorder& recorder_;
  const CommIdentity& who_;
  std::mutex mutex_;
  Error error_;  // for want of a better one
  std::uint64_t since_ns_ = 0;
};

}  // namespace pith
