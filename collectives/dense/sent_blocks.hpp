// What peers send, copied out of their buffers.
//
// A device's kernels read in place what they reach; what can only be copied is fetched chunk by
// chunk; the rest comes by messages of a chunk. Each pair of ranks does as the giver's buffer
// allows.
#pragma once

#include "collectives/dense/handle_exchange.hpp"

namespace pith {

inline bool reaches_sent(const PeerHandles& theirs) {
  return theirs.send != nullptr || theirs.far_send != 0;
}

// into.size bytes from `offset` on of what `rank` sends, which is reached. Returns before kernels
// of a device have ended; the closing waits for these.
Task<Error> copy_sent(Call& call, const HandleExchange& handles, int rank, std::size_t offset,
                      Bytes into, Tuning tuning);

// Fills the block of every rank in recv, the own one too: with all that it sends, or, where send
// has a block for each rank, with the one for us.
Task<Error> move_blocks(Call& call, const CollectiveArgs& args, HandleExchange& handles);

// Its cost by messages, where no ranks share memory.
double moved_blocks_cost(const Shape& shape, const LinkCost& link);

}  // namespace pith
