// Identifies a communicator in its job: its control node, key, members, and this member's rank.
#pragma once

#include <memory>
#include <vector>

#include "control/control_node.hpp"

namespace pith {

struct CommIdentity {
  std::shared_ptr<ControlNode> control;
  CommKey key = 0;
  std::vector<int> members;  // ranks of the job, indexed by rank here
  int rank = 0;

  int size() const { return static_cast<int>(members.size()); }
  int member(int rank_here) const { return members[static_cast<std::size_t>(rank_here)]; }
  int own_member() const { return member(rank); }
};

}  // namespace pith
