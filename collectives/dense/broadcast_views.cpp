// Broadcast over views: all ranks copy the root's vector out of its send buffer at the same time.
//
// The root learns from the opening (handle_exchange.hpp) which ranks reach its memory, and tells
// every rank whether all do. If one does not, the vector goes down the chain instead: sending it to
// each rank would occupy the root's port P-1 times as long as sending it to the first rank of the
// chain.
// Cost by messages, where no ranks share memory: the chain's. Wins for device memory in reach,
// because a kernel reads the vector in place and nothing is staged on the host. Needs: P <= 32.
#include "collectives/dense/sent_blocks.hpp"

namespace pith {

Task<Error> broadcast_chain(Call& call, CollectiveArgs args);
double broadcast_chain_cost(const Shape& shape, const LinkCost& link);

namespace {

constexpr std::uint16_t verdict_lane = HandleExchange::open_lane - 1;

// The root decides whether every rank reaches its vector, and tells the others.
Task<Error> agree(Call& call, const HandleExchange& handles, int root, std::byte& all_reach) {
  const Bytes verdict{&all_reach, 1};
  if (call.rank() != root) co_return co_await call.recv(root, verdict_lane, 0, verdict);
  all_reach = std::byte(handles.hides_send() ? 0 : 1);
  for (int d = 1; d < call.size(); ++d) {
    const int to = wrap(root + d, call.size());
    Error error = co_await call.send(to, verdict_lane, 0, verdict);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> copy_or_pass(Call& call, const CollectiveArgs& args, HandleExchange& handles) {
  Error error = co_await handles.hear();
  if (error) co_return error;
  std::byte all_reach{0};
  error = co_await agree(call, handles, args.root, all_reach);
  if (error) co_return error;
  if (all_reach == std::byte{0}) {
    co_return co_await broadcast_chain(call, args);
  }
  if (call.rank() == args.root) {
    co_await call.until(copy(call, args.recv, args.send));
    co_return Error();
  }
  co_return co_await copy_sent(call, handles, args.root, 0, args.recv, args.tuning);
}

}  // namespace

Task<Error> broadcast_views(Call& call, CollectiveArgs args) {
  if (!call.views()) {
    co_return co_await broadcast_chain(call, args);
  }
  // Only the root exposes a buffer; the others state the kind of their memory.
  const Bytes sent = call.rank() == args.root ? args.send : Bytes{nullptr, 0, args.recv.kind};
  HandleExchange handles(call, sent, {}, copies_of(args.tuning));
  co_return co_await handles.around(copy_or_pass(call, args, handles));
}

double broadcast_views_cost(const Shape& shape, const LinkCost& link) {
  return broadcast_chain_cost(shape, link);
}

}  // namespace pith
