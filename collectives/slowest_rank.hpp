// How long a call took on its slowest rank, where one that leaves early cannot know it.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

// Runs the algorithm and adds its time to the run, if it is one of a run. If its time is told, each
// rank then sends the longest time of its subtree towards `to`, a place in the call's order, whose
// args.plan.slowest has that of all. A rank waits for its subtree only: the leaves, half of all,
// for nobody.
Task<Error> run_and_tell(Call& call, CollectiveArgs args, const Algorithm& algorithm, int to);

}  // namespace pith
