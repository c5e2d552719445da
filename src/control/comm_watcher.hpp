// A communicator, as the control plane sees it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "control/call_note.hpp"
#include "core/error.hpp"

namespace pith {

// Identifies a communicator within the job.
using CommKey = std::uint64_t;

class EpochGate;

// A call that makes no progress.
struct Stall {
  CallNote call;
  double seconds = 0;       // without progress
  int waits_for = -1;       // rank of the communicator, where known
  std::string absent = {};  // "rank 1, rank 3": missing in an agreement, where known
};
using Stalls = std::map<CommKey, Stall>;

// No function may block. All but find_call, refusal_of, epoch_gate and wanted_parameters may use
// the control plane.
class CommWatcher {
 public:
  // Called once: no operation can succeed any more. The error's rank is one of the communicator.
  virtual void on_revoked(const Error& error) = 0;
  // Called once for each rank whose process or host is gone; the error names it. That alone revokes
  // nothing.
  virtual void on_dead(const Error& error) = 0;
  // The call of this number, if it has begun here and is still recorded.
  virtual std::optional<CallNote> find_call(std::uint32_t number) = 0;
  // Why the call of this number, not begun here, will be refused: a rank has died. Ranks that are
  // in it wait in vain.
  virtual Error refusal_of(std::uint32_t number) = 0;
  // Called every turn; returns a call that is stalled.
  virtual std::optional<Stall> look(std::uint64_t now_ns) = 0;
  // The stall has lasted long enough for a line in the log.
  virtual void on_stalled(const Stall& stall) = 0;
  // Through it parameters change while calls run. Null: the communicator's never do.
  virtual EpochGate* epoch_gate() { return nullptr; }
  // At rank 0 of the communicator, while no change is open: those that should hold from soon on,
  // if other ones do now.
  virtual std::optional<std::string> wanted_parameters() { return std::nullopt; }

 protected:
  ~CommWatcher() = default;
};

}  // namespace pith
