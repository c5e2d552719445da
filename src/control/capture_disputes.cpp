#include "control/capture_disputes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/call_number.hpp"

namespace pith {

namespace {

// Stalled ranks repeat their reports more often than this.
constexpr double stale_s = 1.5;

}  // namespace

Error CaptureDisputes::note(const StallReport& report) {
  const Stall& stall = report.stall;
  // Only numbered calls are either captured or eager.
  const bool has_kind = stall.call.number != 0 && stall.call.round == 0;
  if (!has_kind || stall.seconds < context_.options.warn_s) {
    const auto found = standing_.find(report.comm);
    if (found != standing_.end()) found->second.erase(report.rank);
    return {};
  }
  AllStanding& standing = standing_[report.comm];
  standing[report.rank] = {stall.call, context_.now_ns};
  return all_stand(report.members, standing) ? compare(report.members, standing) : Error();
}

void CaptureDisputes::forget_stale() {
  for (auto& [comm, standing] : standing_) {
    std::erase_if(standing, [this](const auto& one) {
      return context_.since(one.second.heard_ns) > stale_s;
    });
  }
  std::erase_if(standing_, [](const auto& entry) { return entry.second.empty(); });
}

bool CaptureDisputes::all_stand(const std::vector<int>& members,
                                const AllStanding& standing) const {
  return !members.empty() && std::ranges::all_of(members, [&](int rank) {
    const auto found = standing.find(rank);
    return found != standing.end() && context_.membership.lives(rank) &&
           context_.since(found->second.heard_ns) < stale_s;
  });
}

Error CaptureDisputes::compare(const std::vector<int>& members, const AllStanding& standing) {
  const CallNote& first = standing.at(members.front()).call;
  std::vector<int> captured;
  std::vector<int> eager;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const CallNote& call = standing.at(members[i]).call;
    if (call.digest != first.digest) return {};
    (is_captured(call.number) ? captured : eager).push_back(static_cast<int>(i));
  }
  if (captured.empty() || eager.empty()) return {};
  return {Code::invalid_usage,
          fmt::format("ranks disagree on a call of this communicator: {} captured {} in a "
                      "graph, {} did not, and none of them goes on; all ranks capture a "
                      "call, or none does",
                      list_of(captured), first.text, list_of(eager)),
          eager.front()};
}

void CaptureDisputes::add_known(std::set<CommKey>& known) const {
  for (const auto& [comm, standing] : standing_) known.insert(comm);
}

}  // namespace pith
