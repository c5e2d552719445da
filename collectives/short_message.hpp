// A short point-to-point message of a thread that waits for its end.
#pragma once

#include <cstddef>

#include "collectives/point_to_point.hpp"

namespace pith {

class Engine;

// Does what the coroutine of exchange_messages() does for one message in host memory, by the same
// messages: the peer may run that. Sends one for which the window has room, driving the engine
// until it has ended; receives one that has come whole, or comes at once. False: nothing has been
// done, and exchange_messages() makes the message. `result`: written if true. Precondition: the
// engine's token is held.
bool move_at_once(Call& call, const Message& message, PairWindows& windows, std::size_t chunk_bytes,
                  Engine& engine, Error& result);

}  // namespace pith
