// At the root: finds a call that some ranks have captured in a graph and others have not. Captured
// and eager calls have different numbers, so neither a message nor a question for a number shows
// it.
//
// The order of replays and eager calls may differ between ranks, so ranks that wait in calls of
// both kinds may be right and the others just late. It counts as a mistake when no rank of the
// communicator has made progress for warn_s, and all are stalled in calls that differ only in kind.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "control/control_context.hpp"
#include "control/control_messages.hpp"

namespace pith {

class CaptureDisputes {
 public:
  CaptureDisputes(const ControlContext& context) : context_(context) {}

  // A rank reports a stall. Returns an error where all ranks are stalled in a call that only some
  // have captured.
  Error note(const StallReport& report);
  // Drops ranks that have not repeated their report.
  void forget_stale();
  void forget(CommKey comm) { standing_.erase(comm); }
  void add_known(std::set<CommKey>& known) const;

 private:
  // What a rank last reported to be stalled in.
  struct Standing {
    CallNote call;
    std::uint64_t heard_ns = 0;
  };
  using AllStanding = std::map<int, Standing>;  // by rank of the job
  bool all_stand(const std::vector<int>& members, const AllStanding& standing) const;
  static Error compare(const std::vector<int>& members, const AllStanding& standing);

  const ControlContext& context_;
  std::map<CommKey, AllStanding> standing_;
};

}  // namespace pith
