// Communicators that are over are forgotten.
//
// Facts of a communicator travel along the same connections as the news that a member has let go
// of it, and ahead of them, so nothing comes after the word that it is over. But where the tree
// breaks in between, a rank may miss that word and tell its new neighbours what it still knows:
// whoever remembers that it is over answers so. Ranks remember a limited number of them; what is
// told later than that stays in the tables, a few numbers for each death at most.
#include <algorithm>
#include <utility>

#include "comm/control_messages.hpp"

namespace pith {

namespace {

constexpr std::size_t over_kept = 1024;

}  // namespace

// Only the root needs to know; those on the way keep it for the next one.
void ControlPlane::note_gone(CommKey comm, const std::vector<int>& members, int rank, int from) {
  if (rank < 0 || rank >= options_.ranks || tell_if_over(comm, from)) return;
  Gone& gone = gone_[comm];
  if (!gone.ranks.insert(rank).second) return;
  if (gone.members.empty()) gone.members = members;
  maybe_over_.insert(comm);
  if (started_ && !is_root()) {
    wire_.send(parent_, message(Kind::gone).value(comm).value(rank).numbers(members).take());
  }
}

void ControlPlane::hear_gone(Unpacker& in, int from) {
  const auto comm = in.value<CommKey>();
  const int rank = in.value<int>();
  const std::vector<int> members = in.numbers();
  if (in.whole()) note_gone(comm, members, rank, from);
}

// After a death or a departure, and at a new root.
void ControlPlane::look_at_all_gone() {
  for (const auto& [comm, gone] : gone_) maybe_over_.insert(comm);
}

// A rank that cannot be reached may still live.
bool ControlPlane::is_over(const Gone& gone) const {
  if (gone.members.empty()) return false;
  return std::all_of(gone.members.begin(), gone.members.end(), [&](int rank) {
    return gone.ranks.contains(rank) || dead_.contains(rank) || left_.contains(rank);
  });
}

void ControlPlane::find_over() {
  for (const CommKey comm : std::exchange(maybe_over_, {})) {
    const auto found = gone_.find(comm);
    if (is_root() && found != gone_.end() && is_over(found->second)) note_over(comm, -1);
  }
}

// Whether it is over; who does not know that is told.
bool ControlPlane::tell_if_over(CommKey comm, int from) {
  if (!over_.contains(comm)) return false;
  const bool neighbour = children_.contains(from) || (from >= 0 && from == parent_);
  if (started_ && neighbour) wire_.send(from, message(Kind::over).value(comm).take());
  return true;
}

void ControlPlane::note_over(CommKey comm, int from) {
  if (!over_.insert(comm).second) return;
  over_order_.push_back(comm);
  if (over_order_.size() > over_kept) {
    over_.erase(over_order_.front());
    over_order_.pop_front();
  }
  gone_.erase(comm);
  revoked_.erase(comm);
  forget_results(comm);
  std::erase_if(collecting_, [&](const auto& entry) { return entry.first.comm == comm; });
  std::erase_if(inquiries_, [&](const auto& entry) { return entry.first.first == comm; });
  standing_.erase(comm);
  spread(message(Kind::over).value(comm).take(), from);
}

std::vector<CommKey> ControlPlane::remembered() const {
  const std::lock_guard lock(mutex_);
  std::set<CommKey> known;
  for (const auto& [comm, gone] : gone_) known.insert(comm);
  for (const auto& [comm, error] : revoked_) known.insert(comm);
  for (const auto& [comm, member] : members_) known.insert(comm);
  for (const auto& [key, pending] : pending_) known.insert(key.comm);
  for (const auto& [key, collecting] : collecting_) known.insert(key.comm);
  for (const auto& [key, inquiry] : inquiries_) known.insert(key.first);
  for (const auto& [comm, standing] : standing_) known.insert(comm);
  return {known.begin(), known.end()};
}

}  // namespace pith
