// How long a call took on its slowest rank, where one that leaves early cannot know it.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

// Runs the algorithm; then each rank sends the longest time of its subtree towards `to`, a place in
// the call's order, whose args.plan.slowest_s has the time of all. A rank waits for its subtree
// only: the leaves, half of all, for nobody.
Task<Error> run_and_tell(Call& call, CollectiveArgs args, const Algorithm& algorithm, int to);

}  // namespace pith
