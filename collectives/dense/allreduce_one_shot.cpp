// One-shot allreduce: every rank reads the vectors of all other ranks and reduces them itself.
//
// A vector in memory that this rank can load from is read in place; any other comes as a message.
// Cost by messages, where no ranks share memory: alpha + (P-1)(beta n + gamma n). Wins for short
// vectors among few ranks. All ranks reduce in rank order: all ranks get the same bits. Needs:
// P <= 32.
#include "collectives/dense/handle_exchange.hpp"

namespace pith {

namespace {

Task<Error> send_to_unreached(Call& call, const CollectiveArgs& args,
                              const HandleExchange& handles) {
  const int p = call.size();
  for (int d = 1; d < p; ++d) {
    const int to = wrap(call.rank() + d, p);
    if (handles[to].sees_send) continue;
    Error error = co_await call.send(to, 0, 0, args.send);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> reduce_all(Call& call, const CollectiveArgs& args, HandleExchange& handles, Bytes out) {
  const int p = call.size();
  Error error = co_await handles.hear();
  if (error) co_return error;
  Leases leases;
  const std::size_t bytes = args.send.size;
  const Scratch fetched = handles.any_copies_only()
                              ? Scratch(call.host_compute(), bytes * static_cast<std::size_t>(p))
                              : Scratch();
  std::array<const std::byte*, most_view_ranks> inputs;
  for (int r = 0; r < p; ++r) {
    const auto i = static_cast<std::size_t>(r);
    inputs[i] = r == call.rank() ? args.send.data : handles[r].send;
    if (inputs[i] && handles[r].copies_only) {
      const Bytes here = fetched.bytes().part(i * bytes, bytes);
      call.host_compute().run<CopyKernel>({here.data, inputs[i], bytes});
      inputs[i] = here.data;
    }
    if (inputs[i]) continue;
    Expected<Borrowed> theirs = co_await call.borrow(r, 0, 0, bytes);
    if (!theirs) co_return theirs.error();
    inputs[i] = leases.add(std::move(*theirs));
  }
  const auto all = static_cast<std::size_t>(p);
  const Fence reduced = reduce_all_ranks(call, args, out, std::span(inputs).first(all));
  leases.give_back(call, reduced);
  co_await call.until(reduced);
  co_return Error();
}

Task<Error> give_and_reduce(Call& call, const CollectiveArgs& args, HandleExchange& handles,
                            Bytes out) {
  std::array<Task<Error>, 2> strands;
  std::size_t used = 0;
  if (handles.hides_send()) strands[used++] = send_to_unreached(call, args, handles);
  strands[used++] = reduce_all(call, args, handles, out);
  co_return co_await when_all(std::span(strands).first(used));
}

}  // namespace

Task<Error> allreduce_direct(Call& call, CollectiveArgs args);

Task<Error> allreduce_one_shot(Call& call, CollectiveArgs args) {
  // A vector without elements may have no address, and then cannot be exposed to peers.
  if (args.send.size == 0) {
    co_return co_await allreduce_direct(call, args);
  }
  // In place, peers still read the vector while this rank reduces: the result waits in scratch.
  Scratch beside;
  Bytes out = args.recv;
  if (args.send.data == args.recv.data) {
    beside = Scratch(call.compute(), args.recv.size);
    out = beside.bytes();
  }
  HandleExchange handles(call, args.send, {});
  Error error = co_await handles.around(give_and_reduce(call, args, handles, out));
  if (error) co_return error;
  co_await call.until(copy(call, args.recv, out));
  co_return Error();
}

double allreduce_one_shot_cost(const Shape& shape, const LinkCost& link) {
  return one_round_cost(shape, link);
}

}  // namespace pith
