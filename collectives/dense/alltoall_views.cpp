// All-to-all over views: every rank copies its own block out of each other rank's send buffer.
//
// A block that can be reached is read in place, one that can only be copied is fetched chunk by
// chunk, any other comes by messages of a chunk. Cost by messages, where no ranks share memory:
// alpha + (P-1) beta m. Wins where memory is in reach, except for short blocks, whose opening and
// closing cost more than they save. Needs: send and recv apart, P <= 32.
#include "collectives/dense/sent_blocks.hpp"

namespace pith {

Task<Error> alltoall_views(Call& call, CollectiveArgs args) {
  HandleExchange handles(call, args.send, {}, true);
  Task<Error> moves = move_blocks(call, args, handles);
  Task<Error> whole = handles.around(std::move(moves));
  co_return co_await std::move(whole);
}

double alltoall_views_cost(const Shape& shape, const LinkCost& link) {
  return moved_blocks_cost(shape, link);
}

}  // namespace pith
