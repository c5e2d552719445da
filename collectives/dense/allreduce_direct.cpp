// Direct allreduce: every rank sends its vector to every other rank and reduces all vectors itself.
//
// There is one round, so no rank waits for a rank that is itself waiting.
// Cost: alpha + (P-1)(beta n + gamma n). Wins for a few bytes among few ranks, most where ranks
// share a core: there each of the log P rounds of recursive doubling may cost a context switch. All
// ranks reduce in rank order: all ranks get the same bits. Needs: P <= 32.
#include "collectives/dense/handle_exchange.hpp"

namespace pith {

namespace {

Task<Error> send_to_all(Call& call, const CollectiveArgs& args) {
  for (int d = 1; d < call.size(); ++d) {
    Error error = co_await call.send(wrap(call.rank() + d, call.size()), 0, 0, args.send);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> reduce_all(Call& call, const CollectiveArgs& args, Bytes out) {
  const auto p = static_cast<std::size_t>(call.size());
  Leases leases;
  std::array<const std::byte*, most_view_ranks> inputs;
  for (std::size_t i = 0; i < p; ++i) {
    const int r = static_cast<int>(i);
    inputs[i] = args.send.data;
    if (r == call.rank()) continue;
    Expected<Borrowed> theirs = co_await call.borrow(r, 0, 0, args.send.size);
    if (!theirs) co_return theirs.error();
    inputs[i] = leases.add(std::move(*theirs));
  }
  const Fence reduced = reduce_all_ranks(call, args, out, std::span(inputs).first(p));
  leases.give_back(call, reduced);
  co_await call.until(reduced);
  co_return Error();
}

}  // namespace

Task<Error> allreduce_direct(Call& call, CollectiveArgs args) {
  // In place, sends may still read the vector while this rank reduces: the result waits in scratch.
  Scratch beside;
  Bytes out = args.recv;
  if (args.send.data == args.recv.data) {
    beside = Scratch(call.compute(), args.recv.size);
    out = beside.bytes();
  }
  std::array<Task<Error>, 2> strands{send_to_all(call, args), reduce_all(call, args, out)};
  Error error = co_await when_all(std::span(strands));
  if (error) co_return error;
  co_await call.until(copy(call, args.recv, out));
  co_return Error();
}

double allreduce_direct_cost(const Shape& shape, const LinkCost& link) {
  return one_round_cost(shape, link);
}

}  // namespace pith
