// Which communicators are revoked, and which are over.
//
// Garbage collection: a communicator is over when each of its members has released it, has died or
// has left, for no rank can ask for it any more. The root finds that out and tells all ranks, which
// drop their state of it. Facts of a communicator travel along the same connections as the news of
// its releases, and ahead of them, so normally nothing arrives after `over`. But where the tree
// breaks in between, a rank may miss `over` and tell its new neighbours what it still knows; ranks
// that remember that it is over answer so. They remember a limited number; later news stays in the
// tables, a few numbers for each death at most.
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

  // `from`: the neighbour that reported it; -1: this rank. The first cause counts.
  void revoke(CommKey comm, const std::vector<int>& members, const Error& error, int from);
  bool is_revoked(CommKey comm) const { return revoked_.contains(comm); }
  Error cause_of(CommKey comm) const;
  const std::map<CommKey, Error>& all() const { return revoked_; }

  // `rank` has released the communicator. The root needs to know; ranks on the way keep it for the
  // next root.
  void release(CommKey comm, const std::vector<int>& members, int rank, int from);
  bool has_released(CommKey comm, int rank) const;
  // Marks all for find_over(): after a death or a departure, and at a new root.
  void check_all();
  // At the root: those that have become over.
  std::vector<CommKey> find_over();
  // The communicator is over; returns whether that is news.
  bool end(CommKey comm, int from);
  bool is_over(CommKey comm) const { return over_.contains(comm); }
  // Returns is_over(); if it is, tells the neighbour `from`.
  bool tell_if_over(CommKey comm, int from);

  void pack(Packer& packer) const;
  void hear(Unpacker& in, int from);
  void hear_revoked(Unpacker& in, int from);
  void hear_released(Unpacker& in, int from);
  void add_known(std::set<CommKey>& known) const;

 private:
  // The members that have released a communicator; none yet, perhaps, if it is revoked.
  struct Released {
    std::vector<int> members;
    std::set<int> ranks;
  };
  bool all_gone(const Released& released) const;

  const ControlContext& context_;
  ControlTree& tree_;
  std::map<CommKey, Error> revoked_;
  std::map<CommKey, Released> released_;
  std::set<CommKey> maybe_over_;  // keys of released_ to check in the next turn
  std::set<CommKey> over_;        // the last ones; late news of them is ignored
  std::deque<CommKey> over_order_;
};

}  // namespace pith
