// The control plane: what the ranks of a job tell each other besides data. Who has died, which
// communicators are revoked and why, agreement, and why a call does not get on.
//
// What is known spreads along a tree as facts, which only ever grow in number, so that ranks with
// different knowledge may build different trees for a while: whoever learns of a death computes its
// parent anew and tells it all it knows, whoever hears something new passes it on, and once nothing
// is new all have the same facts and hence the same tree.
//
// This class takes what arrives to the part that it concerns, and holds the lock for all of them.
// Handlers instead of coroutines: facts have no order, so there is nothing to await. The same code
// runs on sockets, between threads, and in virtual time; it never waits and has no thread of its
// own. Thread-safe; watchers are called by whoever calls turn(), without the lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "control/agreement.hpp"
#include "control/comm_watcher.hpp"
#include "control/control_context.hpp"
#include "control/control_messages.hpp"
#include "control/control_tree.hpp"
#include "control/control_wire.hpp"
#include "control/parent_watch.hpp"
#include "control/revocation.hpp"
#include "control/stall_watch.hpp"
#include "control/watchers.hpp"

namespace pith {

class ControlPlane final : public ControlHandler {
 public:
  ControlPlane(const ControlOptions& options, ControlWire& wire);

  // Joins the tree. The wire must be ready to send.
  void start(std::uint64_t now_ns);
  // Calls watchers and callbacks, and does what time demands: call it about every 100 ms, and soon
  // after anything has arrived.
  void turn(std::uint64_t now_ns);
  // This rank will leave in order. True: it may go now. Ask again after a turn. `ends`: its process
  // does, as the others hear.
  bool try_to_leave(bool ends = false);
  // Whatever comes is not heard any more.
  void close();

  void on_message(int from, std::string_view message) override;
  void on_lost(int rank, std::string_view how) override;
  void on_unreachable(int rank, std::string_view how) override;
  void on_hung_up(int rank) override;

  // `members`: ranks of the job, by rank of the communicator. A communicator that was revoked
  // before hears of it in the next turn. After remove() the watcher is not called any more. Every
  // member removes it, also one that could not make it and has not added it.
  void add(CommKey comm, std::vector<int> members, CommWatcher& watcher);
  void remove(CommKey comm, const std::vector<int>& members);
  // Here and at all members. The first cause counts. `known`: its own watcher says so.
  void revoke(CommKey comm, const Error& error, bool known = true);
  // A message showed that ranks disagree about this call: the root compares and revokes.
  void suspect(CommKey comm, const CallNote& call);

  // Collective over the participants, in the same order of keys: ranks of the job, by the rank by
  // which errors name them; -1: nobody. `done` is called from turn(). A member that is left out,
  // has stopped and is in the way of the others is given up as if it had died. `call`: who is in
  // another one disagrees, and all get that error; number 0: nobody is compared.
  using Need = GatherNeed;
  using Done = Agreement::Done;
  void gather(const GatherKey& key, Need need, const std::vector<int>& participants,
              std::string blob, Done done, CallNote call = {});

  // Ranks of the job whose process or host is gone, as far as is known here: the dead, and those
  // who left because their process ended.
  std::vector<int> dead() const {
    const std::lock_guard lock(mutex_);
    return context_.membership.gone_for_good();
  }
  bool any_died() const {
    const std::lock_guard lock(mutex_);
    return context_.membership.any_died();
  }
  // Why, or empty.
  std::string cause_of(int rank) const {
    const std::lock_guard lock(mutex_);
    return context_.membership.cause_of(rank);
  }
  // What has revoked the communicator, as far as it is known here, also before it is added.
  Error revocation_of(CommKey comm) const {
    const std::lock_guard lock(mutex_);
    return revocation_.cause_of(comm);
  }
  int parent() const {
    const std::lock_guard lock(mutex_);
    return tree_.parent();
  }
  // Connections of the tree that this rank has once it stands.
  std::size_t neighbours() const {
    const std::lock_guard lock(mutex_);
    return tree_.neighbours();
  }
  // Communicators of which this rank still knows anything, but for results of a limited size.
  std::vector<CommKey> remembered() const;

 private:
  void hear(int from, std::string_view text);
  void hear_hello(Unpacker& in, int from);
  void hear_facts(Unpacker& in, int from);
  std::string all_facts(MessageKind kind) const;
  void note_dead(int rank, std::string_view how, int from);
  void note_left(int rank, bool ended, int from);
  void note_over(CommKey comm, int from);
  void refresh_tree();
  void watch_parent(const Stalls& stalls);

  mutable std::mutex mutex_;
  std::mutex calling_;  // held while watchers are called; remove() waits for it
  ControlContext context_;
  ControlTree tree_;
  Watchers watchers_;
  Revocation revocation_;
  Agreement agreement_;
  ParentWatch parent_watch_;
  StallWatch stall_watch_;
};

}  // namespace pith
