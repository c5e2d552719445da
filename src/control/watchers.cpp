#include "control/watchers.hpp"

#include <fmt/format.h>

#include "control/members.hpp"

namespace pith {

void Watchers::add(CommKey comm, std::vector<int> members, CommWatcher& watcher) {
  Member member;
  member.ranks = std::move(members);
  member.watcher = &watcher;
  members_.insert_or_assign(comm, std::move(member));
}

void Watchers::remove(CommKey comm) {
  members_.erase(comm);
  std::erase_if(calls_, [comm](const auto& call) { return call.first == comm; });
}

Watchers::Member* Watchers::find(CommKey comm) {
  const auto found = members_.find(comm);
  return found == members_.end() ? nullptr : &found->second;
}

void Watchers::call_later(CommKey comm, std::function<void()> call) {
  calls_.emplace_back(comm, std::move(call));
}

void Watchers::warn_later(CommKey comm, const Member& member, Stall stall) {
  call_later(comm,
             [watcher = member.watcher, stall = std::move(stall)] { watcher->on_stalled(stall); });
}

void Watchers::tell_later(const std::map<CommKey, Error>& revoked, const Membership& membership) {
  for (auto& [comm, member] : members_) {
    const auto found = revoked.find(comm);
    if (found != revoked.end()) tell_revoked(comm, member, found->second);
    tell_of_dead(comm, member, membership);
  }
}

void Watchers::tell_revoked(CommKey comm, Member& member, const Error& error) {
  if (std::exchange(member.told, true)) return;
  call_later(comm, [watcher = member.watcher, error] { watcher->on_revoked(error); });
}

// If this rank itself was given up, its communicators are revoked.
void Watchers::tell_of_dead(CommKey comm, Member& member, const Membership& membership) {
  for (const auto& [rank, how] : membership.said_to_be_dead()) {
    const int place = place_of(member.ranks, rank);
    if (place < 0 || !membership.is_dead(rank) || !member.told_dead.insert(rank).second) continue;
    const Error error(Code::remote, fmt::format("rank {}: {}", place, how), place);
    if (rank == own_) {
      tell_revoked(comm, member, error);
    } else {
      call_later(comm, [watcher = member.watcher, error] { watcher->on_dead(error); });
    }
  }
}

}  // namespace pith
