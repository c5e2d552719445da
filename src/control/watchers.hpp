// The communicators of this rank, and the calls to them that this turn is to make after releasing
// the lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "control/comm_watcher.hpp"
#include "control/membership.hpp"

namespace pith {

class Watchers {
 public:
  struct Member {
    std::vector<int> ranks;  // of the job, by rank of the communicator
    CommWatcher* watcher = nullptr;
    bool told = false;              // the watcher knows of the revocation
    std::set<int> told_dead = {};   // deaths that the watcher knows of; ranks of the job
    std::uint64_t reported_ns = 0;  // the last report of a stall
    bool warned = false;            // of the present stall
  };
  using Members = std::map<CommKey, Member>;
  using Calls = std::vector<std::pair<CommKey, std::function<void()>>>;

  explicit Watchers(int own) : own_(own) {}

  void add(CommKey comm, std::vector<int> members, CommWatcher& watcher);
  void remove(CommKey comm);
  // Null: this rank does not hold the communicator.
  Member* find(CommKey comm);
  Members& all() { return members_; }
  const Members& all() const { return members_; }

  void call_later(CommKey comm, std::function<void()> call);
  void warn_later(CommKey comm, const Member& member, Stall stall);
  // Queues what watchers do not know yet: revocations and deaths.
  void tell_later(const std::map<CommKey, Error>& revoked, const Membership& membership);
  Calls take_calls() { return std::exchange(calls_, {}); }

 private:
  void tell_revoked(CommKey comm, Member& member, const Error& error);
  void tell_of_dead(CommKey comm, Member& member, const Membership& membership);

  const int own_;  // rank of the job
  Members members_;
  Calls calls_;
};

}  // namespace pith
