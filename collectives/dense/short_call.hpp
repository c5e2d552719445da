// A short collective in one round of messages, for a thread that waits for its end.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

class Engine;

// Does what the algorithm's coroutine does, by the same messages: the peers may run that. Drives
// the engine until the call has ended. False: nothing has been done, as the call is a long one, or
// of many ranks, or takes more than one round. `result`: written if true. Precondition: host
// memory; the engine's token is held.
bool make_short_call(Call& call, const CollectiveArgs& args, const Algorithm& algorithm,
                     Engine& engine, Error& result);

}  // namespace pith
