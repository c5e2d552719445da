// A call that some ranks have captured in a graph and others have not: its numbers differ, so that
// no message shows it, and neither does a question for either number.
//
// Replays and eager calls may come in another order on each rank, so two ranks that wait in calls
// of both kinds may be right, and the missing ones late. It counts as a mistake when nothing has
// moved on any rank of the communicator for as long as it takes for a line in the log, and all of
// them stand in what is the same call but for its kind.
#include <fmt/format.h>

#include <algorithm>

#include "comm/control_messages.hpp"
#include "core/call_number.hpp"

namespace pith {

namespace {

// Who stands still says so more often than this.
constexpr double stale_s = 1.5;

}  // namespace

// At the root.
void ControlPlane::note_standing(CommKey comm, const std::vector<int>& members, int rank,
                                 const Stall& stall) {
  // Messages of pairs and agreements have no kinds.
  const bool has_kind = stall.call.number != 0 && stall.call.round == 0;
  if (!has_kind || stall.seconds < options_.warn_s) {
    const auto found = standing_.find(comm);
    if (found != standing_.end()) found->second.erase(rank);
    return;
  }
  standing_[comm][rank] = {stall, now_ns_};
  compare_captures(comm, members);
}

void ControlPlane::forget_standing() {
  for (auto& [comm, standing] : standing_) {
    std::erase_if(standing,
                  [this](const auto& one) { return since(one.second.heard_ns) > stale_s; });
  }
  std::erase_if(standing_, [](const auto& entry) { return entry.second.empty(); });
}

bool ControlPlane::all_stand(const std::vector<int>& members,
                             const std::map<int, Standing>& standing) const {
  return std::all_of(members.begin(), members.end(), [&](int rank) {
    const auto found = standing.find(rank);
    return found != standing.end() && lives(rank) && since(found->second.heard_ns) < stale_s;
  });
}

void ControlPlane::compare_captures(CommKey comm, const std::vector<int>& members) {
  const std::map<int, Standing>& standing = standing_.at(comm);
  if (!all_stand(members, standing)) return;
  const CallNote& first = standing.at(members.front()).stall.call;
  std::vector<int> captured;
  std::vector<int> eager;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const CallNote& call = standing.at(members[i]).stall.call;
    if (call.digest != first.digest) return;
    (is_captured(call.number) ? captured : eager).push_back(static_cast<int>(i));
  }
  if (captured.empty() || eager.empty()) return;
  const Error error(
      Code::invalid_usage,
      fmt::format("ranks disagree on a call of this communicator: {} captured {} in a "
                  "graph, {} did not, and none of them goes on; all ranks capture a "
                  "call, or none does",
                  list(captured), first.text, list(eager)),
      eager.front());
  note_revoked(comm, members, error, -1);
}

}  // namespace pith
