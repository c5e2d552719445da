// A short allreduce of two ranks for a thread that waits for its end.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

class Engine;

// Whether allreduce_pair() makes a call of host memory that `algorithm` would make.
bool is_short_pair(const CollectiveArgs& args, const Algorithm& algorithm, int ranks);

// Does what the coroutine of recursive doubling does, by the same messages: the peer may run that.
// Drives the engine until the call has ended. Precondition: is_short_pair(); the engine's token is
// held.
Error allreduce_pair(Call& call, const CollectiveArgs& args, Engine& engine);

}  // namespace pith
