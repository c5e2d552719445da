#include "collectives/short_message.hpp"

#include <algorithm>
#include <coroutine>
#include <cstring>

#include "collectives/at_once.hpp"
#include "core/engine.hpp"
#include "core/pair_message.hpp"

namespace pith {

namespace {

// The call by whose headers both ends know the message.
Call call_of(const Call& call, const Message& message) {
  return {call.context(), message.number, PairDigest{message.type, message.count}.encode()};
}

bool is_short(const Call& call, const Message& message, const PairWindows& windows,
              std::size_t chunk_bytes) {
  const Bytes& data = message.data;
  // An empty message is told from an announcement by the coroutine.
  return data.kind == MemoryKind::host && data.size > 0 && message.peer != call.callers_rank() &&
         data.size <= std::min({at_once_bytes, windows.head_bytes(), chunk_bytes});
}

Error send_now(Call& own, int peer, Bytes data, Engine& engine) {
  int remaining = 1;
  Send send;
  send.waiter = std::noop_coroutine();
  send.remaining = &remaining;
  own.prepare(send, peer, pair_lane, 0, data);
  if (!start_send(*own.route(peer).transport, send)) {
    engine.drive_until([&] { return remaining == 0; });
  }
  return send.error ? own.fail(send.error) : Error();
}

bool take_now(Call& own, int peer, Bytes into, Engine& engine) {
  const FrontReader reader{[](void* context, const std::byte* data) {
                             const Bytes& to = *static_cast<Bytes*>(context);
                             std::memcpy(to.data, data, to.size);
                           },
                           &into};
  return take_front_at_once(own, peer, own.header(pair_lane, 0, into.size), reader, engine) ==
         Front::taken;
}

}  // namespace

bool move_at_once(Call& call, const Message& message, PairWindows& windows, std::size_t chunk_bytes,
                  Engine& engine, Error& result) {
  if (!is_short(call, message, windows, chunk_bytes)) return false;
  Call own = call_of(call, message);
  const int peer = call.place_of(message.peer);
  const std::size_t size = message.data.size;
  if (!message.sends) {
    if (!take_now(own, peer, message.data, engine)) return false;
    windows.take(message.peer, size);
  } else {
    const bool waits = windows.is_behind(message.peer, message.number);
    if (waits || !windows.admit(message.peer, size)) return false;
    windows.wake_next(message.peer, call.scheduler());
    result = send_now(own, peer, message.data, engine);
  }
  turn_at_times(message.number, engine);
  return true;
}

}  // namespace pith
