// Where each rank sends at most one message to each other rank, and all of them depend on nothing
// else, a call of short vectors is made here without a coroutine. A message that has come whole is
// read where the transport has it; one that is late goes through the mailbox.
#include "collectives/dense/short_call.hpp"

#include <bit>
#include <coroutine>
#include <cstring>

#include "collectives/at_once.hpp"
#include "collectives/dense/direct.hpp"
#include "collectives/premultiply.hpp"
#include "collectives/registry.hpp"

namespace pith {

namespace {

constexpr int most_short_ranks = 8;
// What other ranks send for a sum is kept until the last of them has come.
constexpr std::size_t kept_bytes = 16384;

struct ShortRound;

struct RoundKind {
  void (*take)(ShortRound& round, int from,
               const std::byte* theirs) = nullptr;  // null: no such call
  void (*finish)(ShortRound& round) = nullptr;      // when all are there; null: take() has done all
  std::uint32_t step = 0;                           // of the algorithm's message
  bool passes_on = false;                           // what a rank sends is what it has got
};

struct ShortRound {
  Call& call;
  const CollectiveArgs& args;
  const RoundKind& kind;
  Header header;              // of all messages, those that this rank sends and those that it gets
  unsigned targets = 0;       // to whom this rank sends: a bit each
  unsigned missing = 0;       // whose messages have not come
  std::byte* kept = nullptr;  // room for a message of each rank

  std::byte* kept_of(int rank) const {
    return kept + static_cast<std::size_t>(rank) * header.length;
  }
};

bool is_root(const Call& call, const CollectiveArgs& args) {
  return call.callers_rank() == args.root;
}

Bytes received_part(const ShortRound& round, int rank) {
  return part(round.args.recv, round.args.type, recv_block(round.args, round.call.rank_at(rank)));
}

Bytes own_part(const ShortRound& round) {
  return sent_to(round.call, round.args, round.call.rank());
}

void copy_to(Bytes to, const std::byte* from) {
  if (to.data != from) std::memmove(to.data, from, to.size);
}

void add_pair(ShortRound& round, const std::byte* first, const std::byte* second) {
  const Fence reduced = reduce(round.call, round.args, round.args.recv, first, second);
  finish(round.call, round.args, round.args.recv, reduced);
}

// Of two ranks: there is nothing to keep.
void add_in_order(ShortRound& round, int from, const std::byte* theirs) {
  const std::byte* const mine = own_part(round).data;
  from == 0 ? add_pair(round, theirs, mine) : add_pair(round, mine, theirs);
}
void add_to_theirs(ShortRound& round, int, const std::byte* theirs) {
  add_pair(round, theirs, own_part(round).data);
}

void keep(ShortRound& round, int from, const std::byte* theirs) {
  std::memcpy(round.kept_of(from), theirs, round.header.length);
}

void add_kept(ShortRound& round) {
  std::array<const std::byte*, most_short_ranks> inputs;
  const int p = round.call.size();
  for (int rank = 0; rank < p; ++rank) {
    inputs[static_cast<std::size_t>(rank)] =
        rank == round.call.rank() ? own_part(round).data : round.kept_of(rank);
  }
  reduce_all_ranks(round.call, round.args, round.args.recv,
                   std::span(inputs).first(static_cast<std::size_t>(p)));
}

void put_block(ShortRound& round, int from, const std::byte* theirs) {
  copy_to(received_part(round, from), theirs);
}
void put_own_block(ShortRound& round) {
  copy_to(received_part(round, round.call.rank()), own_part(round).data);
}

void put_vector(ShortRound& round, int, const std::byte* theirs) {
  copy_to(round.args.recv, theirs);
}
void put_own_vector(ShortRound& round) {
  if (is_root(round.call, round.args)) copy_to(round.args.recv, round.args.send.data);
}

constexpr RoundKind adds_kept{keep, add_kept};
constexpr RoundKind adds_to_mine{add_in_order};
constexpr RoundKind adds_in_second_step{add_in_order, nullptr, 1};
constexpr RoundKind adds_mine{add_to_theirs};
constexpr RoundKind puts_blocks{put_block, put_own_block};
constexpr RoundKind passes_vector_on{put_vector, put_own_vector, 0, true};

// Of algorithms that take one round, some of them only of two ranks. Null: of another one.
const RoundKind* kind_of(Collective collective, const Algorithm& algorithm, bool is_pair) {
  const auto run = algorithm.run;
  switch (collective) {
    case Collective::allreduce:
      if (run == allreduce_direct) return &adds_kept;
      return is_pair && run == allreduce_recursive_doubling ? &adds_in_second_step : nullptr;
    case Collective::allgather:
      if (run == allgather_direct) return &puts_blocks;
      return is_pair && (run == allgather_ring || run == allgather_bruck) ? &puts_blocks : nullptr;
    case Collective::reduce_scatter:
      if (run == reduce_scatter_direct) return &adds_kept;
      if (is_pair && run == reduce_scatter_recursive_halving) return &adds_to_mine;
      return is_pair && run == reduce_scatter_ring ? &adds_mine : nullptr;
    case Collective::alltoall:
      return run == alltoall_pairwise ? &puts_blocks : nullptr;
    case Collective::broadcast:
      if (is_pair && run == broadcast_chain) return &passes_vector_on;
      return run == broadcast_binomial ? &passes_vector_on : nullptr;
    default:
      return nullptr;
  }
}

unsigned bit_of(int rank) { return 1U << rank; }

// Calls f(rank) for each rank whose bit is set, from the lowest on.
template <class F>
void for_each(unsigned ranks, F f) {
  for (; ranks != 0; ranks &= ranks - 1) f(std::countr_zero(ranks));
}

// To whom this rank sends what it gets as one of a binomial tree.
unsigned children(const Call& call, int root) {
  const int p = call.size();
  const int relative = wrap(call.rank() - root, p);
  unsigned ranks = 0;
  for (int child = binomial_bit(relative, p) >> 1; child > 0; child >>= 1) {
    if (relative + child < p) ranks |= bit_of(wrap(call.rank() + child, p));
  }
  return ranks;
}

void set_peers_of_broadcast(ShortRound& round) {
  const Call& call = round.call;
  const int root = call.place_of(round.args.root);
  const int relative = wrap(call.rank() - root, call.size());
  const int bit = binomial_bit(relative, call.size());
  round.targets = children(call, root);
  round.missing = relative == 0 ? 0 : bit_of(wrap(call.rank() - bit, call.size()));
}

ShortRound make_round(Call& call, const CollectiveArgs& args, const RoundKind& kind,
                      std::byte* kept) {
  const std::size_t bytes = args.count * size_of(args.type);
  const unsigned others = (bit_of(call.size()) - 1) & ~bit_of(call.rank());
  ShortRound round{call, args, kind, call.header(0, kind.step, bytes), others, others, kept};
  if (args.collective == Collective::broadcast) set_peers_of_broadcast(round);
  return round;
}

Bytes sent(const ShortRound& round, int to) {
  const bool got_it = round.kind.passes_on && !is_root(round.call, round.args);
  return got_it ? round.args.recv : sent_to(round.call, round.args, to);
}

using Sends = InplaceVector<Send, most_short_ranks - 1>;

// `remaining`: counts those that go on.
Error send_all(ShortRound& round, Sends& sends, int& remaining) {
  Error first;
  for_each(round.targets, [&](int to) {
    if (first) return;
    Send& send = sends.add();
    send.waiter = std::noop_coroutine();
    send.remaining = &remaining;
    round.call.prepare(send, to, 0, round.kind.step, sent(round, to));
    if (!start_send(*round.call.route(to).transport, send)) {
      ++remaining;
    } else if (send.error) {
      first = round.call.fail(send.error);
    }
  });
  return first;
}

// Takes the messages that come in time. False: the others go through the mailbox.
bool take_all_at_once(ShortRound& round, Engine& engine) {
  constexpr int most_passes = 16;  // of ranks that share a core
  struct Taking {
    ShortRound& round;
    int from;
  } taking{round, 0};
  const FrontReader reader{[](void* context, const std::byte* theirs) {
                             const auto& its = *static_cast<Taking*>(context);
                             its.round.kind.take(its.round, its.from, theirs);
                           },
                           &taking};
  for (int pass = 0;; ++pass) {
    for (unsigned left = round.missing; left != 0; left &= left - 1) {
      taking.from = std::countr_zero(left);
      const Front front = take_front_at_once(round.call, taking.from, round.header, reader, engine);
      if (front == Front::taken) {
        round.missing &= ~bit_of(taking.from);
      } else if (front != Front::none) {
        return false;
      }
    }
    if (round.missing == 0) return true;
    if (!engine.is_oversubscribed() || pass == most_passes || !engine.pass_core()) return false;
  }
}

Error take_received(ShortRound& round, std::span<Receive> receives) {
  auto receive = receives.begin();
  Error error;
  for_each(round.missing, [&](int from) {
    const Receive& one = *receive++;
    if (error) return;
    if (one.error) {
      error = round.call.fail(one.error);
    } else if (one.length != round.header.length) {
      error = wrong_length(round.call, one, round.header.length);
    } else {
      round.kind.take(round, from, one.lease.data());
    }
  });
  return error;
}

// `remaining`: of the sends. Not inline, since calls seldom come here.
[[gnu::noinline]] Error wait_for_all(ShortRound& round, Sends& sends, int& remaining,
                                     Engine& engine) {
  InplaceVector<Receive, most_short_ranks - 1> receives;
  for_each(round.missing, [&](int from) {
    Receive& receive = receives.add();
    receive.waiter = std::noop_coroutine();
    receive.remaining = &remaining;
    round.call.prepare(receive, from, 0, round.kind.step);
    receive.room = round.header.length;
    receive.borrow = true;
    if (!round.call.mailbox().start(receive)) ++remaining;
    if (receive.error) static_cast<void>(round.call.fail(receive.error));  // ends the others, too
  });
  engine.drive_until([&] { return remaining == 0; });
  for (const Send& send : sends.all()) {
    if (send.error) return round.call.fail(send.error);
  }
  return take_received(round, receives.all());
}

Error exchange(ShortRound& round, Engine& engine) {
  Sends sends;
  int remaining = 0;
  if (Error error = send_all(round, sends, remaining)) {
    engine.drive_until([&] { return remaining == 0; });
    return error;
  }
  // Of two ranks the result may be written while it is sent from, so a send that goes on comes
  // first.
  if (remaining == 0 && take_all_at_once(round, engine)) return {};
  return wait_for_all(round, sends, remaining, engine);
}

Error make(Call& call, const CollectiveArgs& args, const RoundKind& kind, std::byte* kept,
           Engine& engine) {
  ShortRound round = make_round(call, args, kind, kept);
  if (kind.passes_on && round.missing != 0 && round.targets != 0) {
    const unsigned targets = std::exchange(round.targets, 0);
    if (Error error = exchange(round, engine)) return error;
    round.targets = targets;
    round.missing = 0;
  }
  if (Error error = exchange(round, engine)) return error;
  if (kind.finish) kind.finish(round);
  turn_at_times(call.number(), engine);
  return {};
}

}  // namespace

bool make_short_call(Call& call, const CollectiveArgs& args, const Algorithm& algorithm,
                     Engine& engine, Error& result) {
  const std::size_t bytes = args.count * size_of(args.type);
  // Without elements there is no message.
  if (bytes == 0 || bytes > std::min(at_once_bytes, args.tuning.chunk_bytes)) return false;
  if (call.size() < 2 || call.size() > most_short_ranks) return false;
  if (args.plan.is_told || args.plan.run || args.factor.used) return false;
  if (args.uneven.used() || args.wire.is_used() || is_scaled_average(args, call.size())) {
    return false;
  }
  const RoundKind* const kind = kind_of(args.collective, algorithm, call.size() == 2);
  if (!kind) return false;
  if (kind != &adds_kept) {
    result = make(call, args, *kind, nullptr, engine);
    return true;
  }
  std::byte kept[kept_bytes];
  if (bytes * ranks_of(call) > kept_bytes) return false;
  result = make(call, args, *kind, kept, engine);
  return true;
}

}  // namespace pith
