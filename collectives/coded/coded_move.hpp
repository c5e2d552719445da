// Allgather, reduce-scatter, broadcast and alltoall whose messages have fewer bits.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

// Precondition: args.wire.is_used(), and there are elements. Among any number of ranks, one
// included: all ranks get the same bits, so values that stay are coded, too.
Task<Error> run_coded(Call& call, CollectiveArgs args);

}  // namespace pith
