// Direct allreduce: every rank sends its vector to every other rank and reduces all vectors itself.
//
// Cost: alpha + (P-1)(beta n + gamma n). Wins for a few bytes among few ranks, most where ranks
// share a core: there each of the log P rounds of recursive doubling may cost a context switch. All
// ranks reduce in rank order: all ranks get the same bits. Needs: P <= 32.
#include "collectives/dense/direct.hpp"

namespace pith {

Task<Error> allreduce_direct(Call& call, CollectiveArgs args) {
  // In place, sends may still read the vector while this rank reduces: the result waits in scratch.
  Scratch beside;
  Bytes out = args.recv;
  if (args.send.data == args.recv.data) {
    beside = Scratch(call.compute(), args.recv.size);
    out = beside.bytes();
  }
  std::array<Task<Error>, 2> strands{send_to_all(call, args),
                                     reduce_from_all(call, args, args.send, out)};
  Error error = co_await when_all(std::span(strands));
  if (error) co_return error;
  co_await call.until(copy(call, args.recv, out));
  co_return Error();
}

double allreduce_direct_cost(const Shape& shape, const LinkCost& link) {
  return one_round_cost(shape, link);
}

}  // namespace pith
