// Direct reduce-scatter: every rank sends each other rank the block that is that rank's, and
// reduces all vectors of its own.
//
// Cost for blocks of m bytes: alpha + (P-1)(beta m + gamma m). As few bytes as the ring, in one
// round: wins for short blocks among few ranks. Where ranks share no memory `views` is the same.
// Needs: P <= 32.
#include "collectives/dense/direct.hpp"

namespace pith {

Task<Error> reduce_scatter_direct(Call& call, CollectiveArgs args) {
  const Bytes mine = sent_to(call, args, call.rank());
  std::array<Task<Error>, 2> strands{send_to_all(call, args),
                                     reduce_from_all(call, args, mine, args.recv)};
  co_return co_await when_all(std::span(strands));
}

double reduce_scatter_direct_cost(const Shape& shape, const LinkCost& link) {
  return one_round_cost(shape, link);
}

}  // namespace pith
