// Allgather over views: every rank copies the other ranks' blocks out of their send buffers.
//
// A block that can be reached is read in place, one that can only be copied is fetched chunk by
// chunk, any other comes by messages of a chunk, from its owner to each rank that cannot read it.
// Nobody writes into what others read: in place too a rank's own block stays as it is.
// Cost by messages, where no ranks share memory: alpha + (P-1) beta m. Wins where memory is in
// reach, except for short blocks, whose opening and closing cost more than they save. Needs: P <=
// 32.
#include "collectives/dense/sent_blocks.hpp"

namespace pith {

Task<Error> allgather_views(Call& call, CollectiveArgs args) {
  HandleExchange handles(call, args.send, {}, true);
  Task<Error> moves = move_blocks(call, args, handles);
  Task<Error> whole = handles.around(std::move(moves));
  co_return co_await std::move(whole);
}

double allgather_views_cost(const Shape& shape, const LinkCost& link) {
  return moved_blocks_cost(shape, link);
}

}  // namespace pith
