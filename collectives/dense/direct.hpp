// What algorithms of one round share: every message goes straight from the rank that has something
// to the rank that needs it, so that no rank waits for one that is itself waiting.
#pragma once

#include "collectives/dense/handle_exchange.hpp"

namespace pith {

// What this rank has for rank `to`: a block, or all that it has.
inline Bytes sent_to(const Call& call, const CollectiveArgs& args, int to) {
  const bool has_blocks = extent_of(args.collective, call.size()).send > 1;
  return has_blocks ? part(args.send, args.type, send_block(args, call.rank_at(to))) : args.send;
}

// Sends the next rank its part first, then the one after it, up to the previous one.
Task<Error> send_to_all(Call& call, const CollectiveArgs& args);

// Reduces `mine` and what every other rank sends, in rank order. `out` may be `mine` if no send
// reads it.
Task<Error> reduce_from_all(Call& call, const CollectiveArgs& args, Bytes mine, Bytes out);

}  // namespace pith
