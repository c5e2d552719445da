#include "control/revocation.hpp"

#include <algorithm>
#include <utility>

#include "control/control_messages.hpp"

namespace pith {

namespace {

constexpr std::size_t over_kept = 1024;

}  // namespace

void Revocation::revoke(CommKey comm, const std::vector<int>& members, const Error& error,
                        int from) {
  if (!error || tell_if_over(comm, from) || !revoked_.emplace(comm, error).second) return;
  // All members may die before one releases it, so they are noted now.
  if (!members.empty()) released_.try_emplace(comm, Released{members, {}});
  maybe_over_.insert(comm);
  Packer packer = message(MessageKind::revoked);
  packer.value(comm).numbers(members);
  pith::pack(packer, error);
  tree_.spread(packer.take(), from);
}

void Revocation::hear_revoked(Unpacker& in, int from) {
  const auto comm = in.value<CommKey>();
  const std::vector<int> members = in.numbers();
  revoke(comm, members, unpack_error(in), from);
}

Error Revocation::cause_of(CommKey comm) const {
  const auto found = revoked_.find(comm);
  return found == revoked_.end() ? Error() : found->second;
}

void Revocation::release(CommKey comm, const std::vector<int>& members, int rank, int from) {
  if (!context_.membership.exists(rank) || tell_if_over(comm, from)) return;
  Released& released = released_[comm];
  if (!released.ranks.insert(rank).second) return;
  if (released.members.empty()) released.members = members;
  maybe_over_.insert(comm);
  if (!context_.started || tree_.is_root()) return;
  tree_.send(tree_.parent(),
             message(MessageKind::released).value(comm).value(rank).numbers(members).take());
}

void Revocation::hear_released(Unpacker& in, int from) {
  const auto comm = in.value<CommKey>();
  const int rank = in.value<int>();
  const std::vector<int> members = in.numbers();
  if (in.whole()) release(comm, members, rank, from);
}

bool Revocation::has_released(CommKey comm, int rank) const {
  const auto found = released_.find(comm);
  return found != released_.end() && found->second.ranks.contains(rank);
}

void Revocation::check_all() {
  for (const auto& [comm, released] : released_) maybe_over_.insert(comm);
}

// A rank that is only unreachable may still live.
bool Revocation::all_gone(const Released& released) const {
  if (released.members.empty()) return false;
  return std::ranges::all_of(released.members, [&](int rank) {
    return released.ranks.contains(rank) || context_.membership.is_gone(rank);
  });
}

std::vector<CommKey> Revocation::find_over() {
  std::vector<CommKey> over;
  for (const CommKey comm : std::exchange(maybe_over_, {})) {
    const auto found = released_.find(comm);
    if (tree_.is_root() && found != released_.end() && all_gone(found->second)) {
      over.push_back(comm);
    }
  }
  return over;
}

bool Revocation::tell_if_over(CommKey comm, int from) {
  if (!over_.contains(comm)) return false;
  if (context_.started && tree_.is_neighbour(from)) {
    tree_.send(from, message(MessageKind::over).value(comm).take());
  }
  return true;
}

bool Revocation::end(CommKey comm, int from) {
  if (!over_.insert(comm).second) return false;
  over_order_.push_back(comm);
  if (over_order_.size() > over_kept) {
    over_.erase(over_order_.front());
    over_order_.pop_front();
  }
  released_.erase(comm);
  revoked_.erase(comm);
  tree_.spread(message(MessageKind::over).value(comm).take(), from);
  return true;
}

void Revocation::pack(Packer& packer) const {
  packer.value(static_cast<std::uint32_t>(revoked_.size()));
  for (const auto& [comm, error] : revoked_) {
    const auto released = released_.find(comm);
    packer.value(comm).numbers(released == released_.end() ? std::vector<int>()
                                                           : released->second.members);
    pith::pack(packer, error);
  }
  packer.value(static_cast<std::uint32_t>(released_.size()));
  for (const auto& [comm, released] : released_) {
    packer.value(comm).numbers(released.members);
    packer.numbers({released.ranks.begin(), released.ranks.end()});
  }
}

void Revocation::hear(Unpacker& in, int from) {
  const auto revocations = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < revocations && in.whole(); ++i) hear_revoked(in, from);
  const auto releases = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < releases && in.whole(); ++i) {
    const auto comm = in.value<CommKey>();
    const std::vector<int> members = in.numbers();
    for (const int rank : in.numbers()) release(comm, members, rank, from);
  }
}

void Revocation::add_known(std::set<CommKey>& known) const {
  for (const auto& [comm, released] : released_) known.insert(comm);
  for (const auto& [comm, error] : revoked_) known.insert(comm);
}

}  // namespace pith
