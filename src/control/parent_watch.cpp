#include "control/parent_watch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "control/members.hpp"

namespace pith {

namespace {

constexpr double ping_again_s = 0.7;
// How long a parent that answers may take to find whom to blame.
constexpr double patience_s = 4;
// A shrink that leaves the parent out waits for a stopped one only this long.
constexpr double excluded_silent_s = 2;
constexpr double least_excluded_silent_s = 0.5;

}  // namespace

double ParentWatch::silence() const {
  if (pinged_ns_ == 0) return 0;
  return context_.since(std::max({silent_since_ns_, heard_ns_, tree_.parent_since_ns()}));
}

double ParentWatch::longest_wait(const Stalls& stalls) const {
  double waited = 0;
  for (const auto& [comm, stall] : stalls) waited = std::max(waited, stall.seconds);
  for (const auto& [key, pending] : agreement_.pending()) {
    waited = std::max(waited, context_.since(pending.since_ns));
  }
  return waited;
}

ParentWatch::Verdict ParentWatch::watch(const Stalls& stalls) {
  const double waited = longest_wait(stalls);
  const bool excluded = !tree_.is_root() && is_excluded();
  const bool in_the_way = excluded || (!tree_.is_root() && is_beside(stalls));
  if (tree_.is_root() || (waited < context_.options.report_s && !in_the_way)) {
    pinged_ns_ = 0;
    return Verdict::nothing;
  }
  // Ends before the ranks above lose patience with this rank.
  const double timeout_s = context_.options.timeout_s;
  const double patience =
      timeout_s == 0 ? excluded_silent_s
                     : std::clamp(timeout_s / 2, least_excluded_silent_s, excluded_silent_s);
  // So that more than one ping has gone unanswered.
  ping(in_the_way ? patience / 3 : ping_again_s);
  if (excluded && silence() > patience) return Verdict::give_up;
  if (in_the_way && silence() > patience && tree_.can_pass_by_parent()) return Verdict::pass_by;
  if (timeout_s > 0) end_long_waits(stalls, waited);
  return Verdict::nothing;
}

// A stopped parent answers all pings when it wakes up, so few are sent.
void ParentWatch::ping(double again_s) {
  const bool first = pinged_ns_ == 0;
  if (first) silent_since_ns_ = context_.now_ns;
  const bool again = context_.since(pinged_ns_) >= again_s && silence() <= patience_s;
  if (!first && !again) return;
  pinged_ns_ = context_.now_ns;
  tree_.send(tree_.parent(), message(MessageKind::ping).take());
}

void ParentWatch::end_long_waits(const Stalls& stalls, double waited) {
  const double limit = context_.options.timeout_s + (silence() > silent_s ? 0.5 : patience_s);
  if (waited < limit) return;
  for (const auto& [comm, stall] : stalls) {
    const Watchers::Member* member = watchers_.find(comm);
    if (!member || stall.seconds < limit) continue;
    revocation_.revoke(comm, member->ranks, cause_of_wait(member->ranks, stall.waits_for, waited),
                       -1);
  }
  auto& pending = agreement_.pending();
  for (auto entry = pending.begin(); entry != pending.end();) {
    if (context_.since(entry->second.since_ns) < limit) {
      ++entry;
    } else {
      const Error cause = cause_of_wait(entry->second.own.participants, -1, waited);
      entry = agreement_.refuse(entry, cause);
    }
  }
}

// The error of a rank that has waited too long, as far as it can tell by itself.
Error ParentWatch::cause_of_wait(const std::vector<int>& members, int waits_for,
                                 double waited) const {
  const double silent = silence();
  const int place = place_of(members, tree_.parent());
  if (silent > silent_s && place >= 0) {
    return {Code::remote,
            fmt::format("rank {} has stopped: it has not answered for {:.0f} s", place, silent),
            place};
  }
  if (waits_for >= 0) {
    return {Code::remote, fmt::format("rank {} has not gone on for {:.0f} s", waits_for, waited),
            waits_for};
  }
  if (silent > silent_s) {
    return {Code::remote,
            fmt::format("rank {} of the job, which all agreements pass, has stopped: it has not "
                        "answered for {:.0f} s",
                        tree_.parent(), silent)};
  }
  return {Code::remote, fmt::format("the other ranks have not gone on for {:.0f} s", waited)};
}

// Whether members of a communicator have an agreement that leaves out the parent, a member as well.
bool ParentWatch::is_excluded() const {
  return std::ranges::any_of(agreement_.pending(), [this](const auto& entry) {
    const Contribution& own = entry.second.own;
    const Watchers::Member* member = watchers_.find(own.key.comm);
    return own.need == GatherNeed::live && member && contains(member->ranks, tree_.parent()) &&
           !contains(own.participants, tree_.parent());
  });
}

// Whether others wait, by way of the parent, for what does not concern it: an agreement without it,
// here or below, or a communicator without it.
bool ParentWatch::is_beside(const Stalls& stalls) const {
  return agreement_.others_wait_without(tree_.parent(), context_.options.report_s) ||
         std::ranges::any_of(stalls, [this](const auto& entry) {
           const Watchers::Member* member = watchers_.find(entry.first);
           return member && !contains(member->ranks, tree_.parent());
         });
}

}  // namespace pith
