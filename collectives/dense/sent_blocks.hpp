// Copies blocks out of the send buffers of peers.
//
// A device's kernels read in place what they reach. Memory that can only be copied is fetched chunk
// by chunk. Everything else comes by messages of one chunk each. Each pair of ranks does what the
// sender's buffer allows.
#pragma once

#include "collectives/dense/handle_exchange.hpp"

namespace pith {

inline bool reaches_sent(const PeerHandles& theirs) {
  return theirs.send != nullptr || theirs.far_send != 0;
}

// Copies into.size bytes from `offset` on out of the send buffer of `rank`, which must be in reach.
// Returns before kernels of a device have ended; the closing awaits them.
Task<Error> copy_sent(Call& call, const HandleExchange& handles, int rank, std::size_t offset,
                      Bytes into, Tuning tuning);

// Fills the block of every rank in recv, its own included: with the whole send buffer of that rank,
// or, in an alltoall, with the block for this rank. `sent`: of an alltoall with uneven blocks, by
// rank, where this block lies in the send buffer of that rank.
Task<Error> move_blocks(Call& call, const CollectiveArgs& args, HandleExchange& handles,
                        const Range* sent = nullptr);

// Cost of move_blocks by messages, where no ranks share memory.
double moved_blocks_cost(const Shape& shape, const LinkCost& link);

}  // namespace pith
