// Broadcast over views: every rank copies the root's vector out of its send buffer, all at once.
//
// The root learns from the opening who reaches it and tells everybody whether all do. Where one
// does not the vector goes down the chain: a root that sent it to each rank would take P-1 times as
// long as one that sends it to the first.
// Cost by messages, where no ranks share memory: the chain's. Wins on devices whose memory is in
// reach, for what a kernel can read in place is not staged on the host. Needs: P <= 32.
#include "collectives/dense/sent_blocks.hpp"

namespace pith {

Task<Error> broadcast_chain(Call& call, CollectiveArgs args);
double broadcast_chain_cost(const Shape& shape, const LinkCost& link);

namespace {

constexpr std::uint16_t verdict_lane = HandleExchange::open_lane - 1;

// Whether every rank reaches the root's vector, as the root says.
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
  Task<Error> answers = handles.hear();
  Error error = co_await std::move(answers);
  if (error) co_return error;
  std::byte all_reach{0};
  Task<Error> agreeing = agree(call, handles, args.root, all_reach);
  error = co_await std::move(agreeing);
  if (error) co_return error;
  if (all_reach == std::byte{0}) {
    Task<Error> chain = broadcast_chain(call, args);
    co_return co_await std::move(chain);
  }
  if (call.rank() == args.root) {
    co_await call.until(copy(call, args.recv, args.send));
    co_return Error();
  }
  Task<Error> copying = copy_sent(call, handles, args.root, 0, args.recv, args.tuning);
  co_return co_await std::move(copying);
}

}  // namespace

Task<Error> broadcast_views(Call& call, CollectiveArgs args) {
  if (!call.views()) {
    Task<Error> chain = broadcast_chain(call, args);
    co_return co_await std::move(chain);
  }
  // The others theirs nothing, but on the kind of memory that they have.
  const Bytes sent = call.rank() == args.root ? args.send : Bytes{nullptr, 0, args.recv.kind};
  HandleExchange handles(call, sent, {}, true);
  Task<Error> work = copy_or_pass(call, args, handles);
  Task<Error> whole = handles.around(std::move(work));
  co_return co_await std::move(whole);
}

double broadcast_views_cost(const Shape& shape, const LinkCost& link) {
  return broadcast_chain_cost(shape, link);
}

}  // namespace pith
