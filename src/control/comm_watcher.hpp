// A communicator, as the control plane needs it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "control/call_note.hpp"
#include "core/error.hpp"

namespace pith {

// Names a communicator among all of the job.
using CommKey = std::uint64_t;

// A call that gets no further.
struct Stall {
  CallNote call;
  double seconds = 0;       // without progress
  int waits_for = -1;       // rank of the communicator, where known
  std::string absent = {};  // "rank 1, rank 3": of an agreement who has not come, where known
};
using Stalls = std::map<CommKey, Stall>;

// No function may wait. All but find_call and refusal_of may use the control plane.
class CommWatcher {
 public:
  // Once: no operation can succeed any more. `rank` of the error is one of the communicator.
  virtual void on_revoked(const Error& error) = 0;
  // Once for each: the process or host of the rank that the error names is gone. That alone revokes
  // nothing.
  virtual void on_dead(const Error& error) = 0;
  // The call of this number, if it has begun here and is not forgotten yet.
  virtual std::optional<CallNote> find_call(std::uint32_t number) = 0;
  // Why the call of this number, which has not begun here, will be refused: a rank has died. Those
  // who are in it wait in vain.
  virtual Error refusal_of(std::uint32_t number) = 0;
  // Every turn; tells of a call that does not get on.
  virtual std::optional<Stall> look(std::uint64_t now_ns) = 0;
  // A stall has lasted so long that whoever reads the log should know.
  virtual void on_stalled(const Stall& stall) = 0;

 protected:
  ~CommWatcher() = default;
};

}  // namespace pith
