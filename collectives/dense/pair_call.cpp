// Between two ranks the algorithms for short vectors are one message each way, or one. Here that is
// made without a coroutine. A message that has come whole is read where the transport has it; one
// that is late goes through the mailbox.
#include "collectives/dense/pair_call.hpp"

#include <coroutine>
#include <cstring>

#include "collectives/at_once.hpp"
#include "collectives/premultiply.hpp"
#include "collectives/registry.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

// `theirs`: null where this rank only sends.
using Finish = void (*)(Call& call, const CollectiveArgs& args, const std::byte* theirs);

struct PairExchange {
  Finish finish = nullptr;  // null: no such call
  Bytes data = {};          // what this rank sends; else as long as what it gets
  std::uint32_t step = 0;   // of the algorithm's message
  bool sends = true;
  bool receives = true;
};

int other(const Call& call) { return 1 - call.rank(); }

Bytes sent_part(const Call& call, const CollectiveArgs& args, int rank) {
  return part(args.send, args.type, send_block(args, call.rank_at(rank)));
}
Bytes received_part(const Call& call, const CollectiveArgs& args, int rank) {
  return part(args.recv, args.type, recv_block(args, call.rank_at(rank)));
}

void copy_to(Bytes to, const std::byte* from) {
  if (to.data != from) std::memmove(to.data, from, to.size);
}

void add_in_order(Call& call, const CollectiveArgs& args, const std::byte* mine,
                  const std::byte* theirs) {
  const bool first = call.rank() == 0;
  const Fence reduced = reduce(call, args, args.recv, first ? mine : theirs, first ? theirs : mine);
  finish(call, args, args.recv, reduced);
}

void finish_allreduce(Call& call, const CollectiveArgs& args, const std::byte* theirs) {
  add_in_order(call, args, args.send.data, theirs);
}

void finish_halving(Call& call, const CollectiveArgs& args, const std::byte* theirs) {
  add_in_order(call, args, sent_part(call, args, call.rank()).data, theirs);
}

void finish_reduce_scatter_ring(Call& call, const CollectiveArgs& args, const std::byte* theirs) {
  const std::byte* const mine = sent_part(call, args, call.rank()).data;
  finish(call, args, args.recv, reduce(call, args, args.recv, theirs, mine));
}

void finish_allgather(Call& call, const CollectiveArgs& args, const std::byte* theirs) {
  copy_to(received_part(call, args, call.rank()), args.send.data);
  copy_to(received_part(call, args, other(call)), theirs);
}

void finish_alltoall(Call& call, const CollectiveArgs& args, const std::byte* theirs) {
  copy_to(received_part(call, args, call.rank()), sent_part(call, args, call.rank()).data);
  copy_to(received_part(call, args, other(call)), theirs);
}

void finish_broadcast(Call&, const CollectiveArgs& args, const std::byte* theirs) {
  copy_to(args.recv, theirs != nullptr ? theirs : args.send.data);
}

PairExchange broadcast_of(const Call& call, const CollectiveArgs& args) {
  const bool is_root = call.callers_rank() == args.root;
  return {finish_broadcast, is_root ? args.send : args.recv, 0, is_root, !is_root};
}

PairExchange exchange_of(const Call& call, const CollectiveArgs& args, const Algorithm& algorithm) {
  const auto run = algorithm.run;
  switch (args.collective) {
    case Collective::allreduce:
      if (run == allreduce_recursive_doubling) return {finish_allreduce, args.send, 1};
      break;
    case Collective::allgather:
      if (run == allgather_ring || run == allgather_bruck) return {finish_allgather, args.send};
      break;
    case Collective::reduce_scatter:
      if (run == reduce_scatter_ring) {
        return {finish_reduce_scatter_ring, sent_part(call, args, other(call))};
      }
      if (run == reduce_scatter_recursive_halving) {
        return {finish_halving, sent_part(call, args, other(call))};
      }
      break;
    case Collective::alltoall:
      if (run == alltoall_pairwise) return {finish_alltoall, sent_part(call, args, other(call))};
      break;
    case Collective::broadcast:
      if (run == broadcast_binomial || run == broadcast_chain) return broadcast_of(call, args);
      break;
    default:
      break;
  }
  return {};
}

// False: the peer's message has not come yet. `like`: of the same name as its message.
bool take_at_once(Call& call, const CollectiveArgs& args, Finish finish, const Send& like,
                  const Engine& engine) {
  struct Taking {
    Call& call;
    const CollectiveArgs& args;
    Finish finish;
  } taking{call, args, finish};
  const FrontReader reader{[](void* context, const std::byte* theirs) {
                             const auto& its = *static_cast<Taking*>(context);
                             its.finish(its.call, its.args, theirs);
                           },
                           &taking};
  return take_front_at_once(call, other(call), like.header, reader, engine);
}

// `remaining`: of the two, or the one, messages.
Error wait_for_all(Call& call, const CollectiveArgs& args, const PairExchange& exchange, Send& send,
                   int& remaining, Engine& engine) {
  if (send.error) return call.fail(send.error);
  Receive receive;
  if (exchange.receives) {
    receive.waiter = send.waiter;
    receive.remaining = &remaining;
    call.prepare(receive, other(call), 0, exchange.step);
    receive.room = exchange.data.size;
    receive.borrow = true;
    if (call.mailbox().start(receive)) --remaining;
    if (receive.error) static_cast<void>(call.fail(receive.error));  // ends the send, too
  }
  engine.drive_until([&] { return remaining == 0; });
  if (send.error) return call.fail(send.error);
  if (receive.error) return call.fail(receive.error);
  if (exchange.receives && receive.length != exchange.data.size) {
    return wrong_length(call, receive, exchange.data.size);
  }
  exchange.finish(call, args, exchange.receives ? receive.lease.data() : nullptr);
  return {};
}

Error make(Call& call, const CollectiveArgs& args, const PairExchange& exchange, Engine& engine) {
  int remaining = exchange.sends + exchange.receives;
  Send send;
  send.waiter = std::noop_coroutine();
  send.remaining = &remaining;
  call.prepare(send, other(call), 0, exchange.step, exchange.data);
  if (exchange.sends && start_send(*call.route(other(call)).transport, send)) --remaining;
  const bool was_sent = remaining == int{exchange.receives} && !send.error;
  // The header of a message is that of the one that goes the other way.
  if (!was_sent ||
      (exchange.receives && !take_at_once(call, args, exchange.finish, send, engine))) {
    return wait_for_all(call, args, exchange, send, remaining, engine);
  }
  if (!exchange.receives) exchange.finish(call, args, nullptr);
  turn_at_times(call.number(), engine);
  return {};
}

}  // namespace

bool make_pair_call(Call& call, const CollectiveArgs& args, const Algorithm& algorithm,
                    Engine& engine, Error& result) {
  // Without elements there is no message.
  const std::size_t longest = std::min(at_once_bytes, args.tuning.chunk_bytes);
  if (args.count == 0 || args.count * size_of(args.type) > longest) return false;
  if (args.plan.is_told || args.plan.run || args.factor.used || args.wire.is_used()) return false;
  if (args.uneven.used() || is_scaled_average(args, call.size())) return false;
  const PairExchange exchange = exchange_of(call, args, algorithm);
  if (exchange.finish == nullptr) return false;
  result = make(call, args, exchange, engine);
  return true;
}

}  // namespace pith
