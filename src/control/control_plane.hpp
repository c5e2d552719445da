// The control plane: what the ranks of a job tell each other besides data. Deaths, revoked
// communicators, agreement, and why a call is stalled.
//
// Facts spread along a tree and only grow in number, so ranks with different knowledge may have
// different trees for a while. A rank that learns of a death recomputes its parent and sends it all
// facts; a rank that hears a new fact passes it on. Once there is no news, all ranks have the same
// facts and hence the same tree.
//
// This class passes messages to the part that they concern, and holds the lock for all parts.
// Handlers instead of coroutines: facts have no order, so there is nothing to await. The same code
// runs on sockets, between threads, and in virtual time; it never blocks and has no thread of its
// own. Thread-safe; turn() calls watchers on its caller's thread, without the lock.
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
#include "control/epochs.hpp"
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
  // Calls watchers and callbacks, and does what is due. Call it about every 100 ms, and soon after
  // a message has arrived.
  void turn(std::uint64_t now_ns);
  // This rank wants to leave in order. True: it may leave now; else ask again after a turn. `ends`:
  // its process ends, which the others are told.
  bool try_to_leave(bool ends = false);
  // Messages are ignored from now on.
  void close();

  void on_message(int from, std::string_view message) override;
  void on_lost(int rank, std::string_view how) override;
  void on_unreachable(int rank, std::string_view how) override;
  void on_hung_up(int rank) override;

  // `members`: ranks of the job, by rank of the communicator. If it is revoked already, the watcher
  // is told in the next turn. After remove() the watcher is not called any more. Every member must
  // call remove(), also one that failed to make the communicator and never added it.
  void add(CommKey comm, std::vector<int> members, CommWatcher& watcher);
  void remove(CommKey comm, const std::vector<int>& members);
  // Revokes it here and at all members. The first cause counts. `known`: do not tell its own
  // watcher.
  void revoke(CommKey comm, const Error& error, bool known = true);
  // A message showed that ranks disagree about this call: the root compares their calls and
  // revokes.
  void suspect(CommKey comm, const CallNote& call);

  // Collective over the participants, with keys in the same order. `participants`: ranks of the
  // job, by the rank that errors name; -1: nobody. `done` is called from turn(). A member that is
  // left out, has stopped and blocks the others is given up as if it had died. `call`: ranks in
  // another call of that number disagree, and all get that error; number 0: no comparison.
  using Need = GatherNeed;
  using Done = Agreement::Done;
  void gather(const GatherKey& key, Need need, const std::vector<int>& participants,
              std::string blob, Done done, CallNote call = {});

  // At the member of rank 0: proposes parameters to all members. Once they agree they have them
  // from one of their next calls on, or, where one cannot, nobody has. False: a change is open or
  // not yet reached, or this rank does not hold the communicator.
  bool propose(CommKey comm, const std::string& blob);

  // Ranks of the job whose process or host is gone, as far as this rank knows: the dead, and those
  // that left because their process ended.
  std::vector<int> dead() const {
    const std::lock_guard lock(mutex_);
    return context_.membership.gone_for_good();
  }
  bool any_died() const {
    const std::lock_guard lock(mutex_);
    return context_.membership.any_died();
  }
  // Why a rank is gone; may be empty.
  std::string cause_of(int rank) const {
    const std::lock_guard lock(mutex_);
    return context_.membership.cause_of(rank);
  }
  // What has revoked the communicator, as far as this rank knows; also before it is added.
  Error revocation_of(CommKey comm) const {
    const std::lock_guard lock(mutex_);
    return revocation_.cause_of(comm);
  }
  int parent() const {
    const std::lock_guard lock(mutex_);
    return tree_.parent();
  }
  // The number of this rank's connections once the tree is complete.
  std::size_t neighbours() const {
    const std::lock_guard lock(mutex_);
    return tree_.neighbours();
  }
  // Communicators of which this rank holds state, apart from stored results, whose size is limited.
  std::vector<CommKey> remembered() const;

 private:
  void hear(int from, std::string_view text);
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
  Epochs epochs_;
  ParentWatch parent_watch_;
  StallWatch stall_watch_;
};

}  // namespace pith
