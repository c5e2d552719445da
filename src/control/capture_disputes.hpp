// At the root: a call that some ranks have captured in a graph and others have not. Its numbers
// differ, so that no message shows it, and neither does a question for either number.
//
// Replays and eager calls may come in another order on each rank, so two ranks that wait in calls
// of both kinds may be right, and the missing ones late. It counts as a mistake when nothing has
// moved on any rank of the communicator for as long as it takes for a line in the log, and all of
// them stand in what is the same call but for its kind.
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

  // A rank stands still in a call; the error where all of them stand in one that only some have
  // captured.
  Error note(const StallReport& report);
  // Those that have not said so again.
  void forget_stale();
  void forget(CommKey comm) { standing_.erase(comm); }
  void add_known(std::set<CommKey>& known) const;

 private:
  // What a rank stands still in, as it said last.
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
