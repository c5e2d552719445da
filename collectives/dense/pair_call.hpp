// A short collective of two ranks for a thread that waits for its end.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

class Engine;

// Does what the algorithm's coroutine does between two ranks, by the same messages: the peer may
// run that. Drives the engine until the call has ended. False: nothing has been done, as the call
// is a long one, or more than one message each way. `result`: written if true. Precondition: host
// memory; the engine's token is held.
bool make_pair_call(Call& call, const CollectiveArgs& args, const Algorithm& algorithm,
                    Engine& engine, Error& result);

}  // namespace pith
