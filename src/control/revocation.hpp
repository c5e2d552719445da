// Which communicators are revoked, and which are over.
//
// Garbage collection: a communicator is over when each of its members has let go of it, has died or
// has left, for nobody can ask after it any more. The root finds that out and says so, and all
// forget what they know of it. Facts of a communicator travel along the same connections as the
// news that a member has let go of it, and ahead of them, so nothing comes after the word that it
// is over. But where the tree breaks in between, a rank may miss that word and tell its new
// neighbours what it still knows: whoever remembers that it is over answers so. Ranks remember a
// limited number of them; what is told later than that stays in the tables, a few numbers for each
// death at most.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/comm_watcher.hpp"
#include "control/control_context.hpp"
#include "control/control_tree.hpp"

namespace pith {

class Revocation {
 public:
  Revocation(const ControlContext& context, ControlTree& tree) : context_(context), tree_(tree) {}

  // `from`: the neighbour that says so; -1: this rank. The first cause counts.
  void revoke(CommKey comm, const std::vector<int>& members, const Error& error, int from);
  bool is_revoked(CommKey comm) const { return revoked_.contains(comm); }
  Error cause_of(CommKey comm) const;
  const std::map<CommKey, Error>& all() const { return revoked_; }

  // A member lets go of a communicator. The root needs to know; those on the way keep it for the
  // next one.
  void release(CommKey comm, const std::vector<int>& members, int rank, int from);
  bool has_released(CommKey comm, int rank) const;
  // Any of them may be over now: after a death or a departure, and at a new root.
  void check_all();
  // At the root: those that are over and were not yet.
  std::vector<CommKey> find_over();
  // It is over; whether that is news.
  bool end(CommKey comm, int from);
  bool is_over(CommKey comm) const { return over_.contains(comm); }
  // The same; a neighbour that does not know it is told.
  bool tell_if_over(CommKey comm, int from);

  void pack(Packer& packer) const;
  void hear(Unpacker& in, int from);
  void hear_revoked(Unpacker& in, int from);
  void hear_released(Unpacker& in, int from);
  void add_known(std::set<CommKey>& known) const;

 private:
  // Who has let go of a communicator; nobody yet, perhaps, of one that is revoked.
  struct Released {
    std::vector<int> members;
    std::set<int> ranks;
  };
  bool all_gone(const Released& released) const;

  const ControlContext& context_;
  ControlTree& tree_;
  std::map<CommKey, Error> revoked_;
  std::map<CommKey, Released> released_;
  std::set<CommKey> maybe_over_;  // of released_, to be looked at in the next turn
  std::set<CommKey> over_;        // the last ones that are over: late news of them means nothing
  std::deque<CommKey> over_order_;
};

}  // namespace pith
