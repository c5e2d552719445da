// Recursive doubling's one exchange between two ranks, without a coroutine. A message that has come
// whole is read where the transport has it; one that is late goes through the mailbox.
#include "collectives/dense/allreduce_pair.hpp"

#include <coroutine>

#include "collectives/at_once.hpp"
#include "collectives/premultiply.hpp"
#include "collectives/registry.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

int other(const Call& call) { return 1 - call.rank(); }

void add_up(Call& call, const CollectiveArgs& args, const std::byte* theirs) {
  const bool first = call.rank() == 0;
  const Fence reduced = reduce(call, args, args.recv, first ? args.send.data : theirs,
                               first ? theirs : args.send.data);
  finish(call, args, args.recv, reduced);
}

// False: the peer's message has not come yet.
bool take_at_once(Call& call, const CollectiveArgs& args, const Send& send, const Engine& engine) {
  struct Sum {
    Call& call;
    const CollectiveArgs& args;
  } sum{call, args};
  const FrontReader reader{[](void* context, const std::byte* theirs) {
                             auto& [its_call, its_args] = *static_cast<Sum*>(context);
                             add_up(its_call, its_args, theirs);
                           },
                           &sum};
  // Its header is that of the message that went the other way.
  return take_front_at_once(call, other(call), send.header, reader, engine);
}

// `remaining`: 2, or 1 if the send has ended.
Error wait_for_both(Call& call, const CollectiveArgs& args, Send& send, int& remaining,
                    Engine& engine) {
  if (send.error) return call.fail(send.error);
  Receive receive;
  receive.waiter = send.waiter;
  receive.remaining = &remaining;
  call.prepare(receive, other(call), 0, send.header.step);
  receive.room = args.send.size;
  receive.borrow = true;
  if (call.mailbox().start(receive)) --remaining;
  if (receive.error) static_cast<void>(call.fail(receive.error));  // ends the send, too
  engine.drive_until([&] { return remaining == 0; });
  if (send.error) return call.fail(send.error);
  if (receive.error) return call.fail(receive.error);
  if (receive.length != args.send.size) return wrong_length(call, receive, args.send.size);
  add_up(call, args, receive.lease.data());
  return {};
}

}  // namespace

bool is_short_pair(const CollectiveArgs& args, const Algorithm& algorithm, int ranks) {
  // Without elements there is no message.
  return ranks == 2 && args.count > 0 && algorithm.run == allreduce_recursive_doubling &&
         args.send.size <= at_once_bytes && !args.plan.is_told && !args.plan.run &&
         !args.factor.used && !args.wire.is_used() && !is_scaled_average(args, ranks);
}

Error allreduce_pair(Call& call, const CollectiveArgs& args, Engine& engine) {
  int remaining = 2;
  Send send;
  send.waiter = std::noop_coroutine();
  send.remaining = &remaining;
  call.prepare(send, other(call), 0, 1, args.send);
  if (start_send(*call.route(other(call)).transport, send)) --remaining;
  const bool was_sent = remaining == 1 && !send.error;
  if (!was_sent || !take_at_once(call, args, send, engine)) {
    return wait_for_both(call, args, send, remaining, engine);
  }
  turn_at_times(call.number(), engine);
  return {};
}

}  // namespace pith
