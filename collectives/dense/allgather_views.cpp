// Allgather over views: every rank copies the blocks of the other ranks out of their send buffers.
//
// A block in memory that this rank can load from is read in place. A block in memory that can only
// be copied is fetched chunk by chunk. Any other block is copied by its owner to where all ranks of
// the host read it, if it is long (shared_copy.hpp: 4 ranks, blocks of 1 and 4 MiB, 1.5 times as
// fast), else sent, one message a chunk, to each rank that cannot read it. Works in place: no rank
// writes to a block that others read. Cost by messages, where no ranks share memory: alpha + (P-1)
// beta m for blocks of m bytes. Wins where ranks share memory, except for short blocks, where
// opening and closing (handle_exchange.hpp) cost more than they save. Needs: P <= 32.
#include "collectives/dense/sent_blocks.hpp"
#include "collectives/dense/shared_copy.hpp"

namespace pith {

Task<Error> allgather_views(Call& call, CollectiveArgs args) {
  const SharedCopy sent(call, args.send, args.tuning);
  HandleExchange handles(call, sent.bytes(), {}, copies_of(args.tuning));
  co_return co_await handles.around(move_blocks(call, args, handles));
}

double allgather_views_cost(const Shape& shape, const LinkCost& link) {
  return moved_blocks_cost(shape, link);
}

}  // namespace pith
