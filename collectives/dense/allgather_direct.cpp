// Direct allgather: every rank sends its block to every other rank.
//
// Cost for blocks of m bytes: alpha + (P-1) beta m. As few bytes as the ring, in one round: wins
// for short blocks among few ranks, since each message takes a core's time. Where ranks share no
// memory `views` is the same. Needs: P <= 32.
#include "collectives/dense/direct.hpp"

namespace pith {

namespace {

Task<Error> receive_blocks(Call& call, const CollectiveArgs& args) {
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    const Bytes block = part(args.recv, args.type, recv_block(args, call.rank_at(from)));
    if (block.size == 0) continue;
    Error error = co_await call.recv(from, 0, 0, block);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace

Task<Error> allgather_direct(Call& call, CollectiveArgs args) {
  const Range own = recv_block(args, call.callers_rank());
  const Fence copied = copy(call, part(args.recv, args.type, own), args.send);
  std::array<Task<Error>, 2> strands{send_to_all(call, args), receive_blocks(call, args)};
  Error error = co_await when_all(std::span(strands));
  co_await call.until(copied);
  co_return error;
}

double allgather_direct_cost(const Shape& shape, const LinkCost& link) {
  const double peers = shape.ranks - 1;
  return link.alpha + (peers - 1) * link.message +
         peers * link.beta * static_cast<double>(shape.bytes);
}

}  // namespace pith
