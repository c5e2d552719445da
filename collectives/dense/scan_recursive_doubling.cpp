// Scan by recursive doubling: in round i every rank sends what it has combined to the rank 2^i
// further up, which puts it before its own. [Kogge, Stone 1973; Hillis, Steele 1986]
//
//   have   0    1    2    3    4          Ranks here are the caller's: the result of a rank has
//   +1     0    01   12   23   34         operands in their order, whichever order the rank order
//   +2     0    01   012  0123 1234       gives to other algorithms.
//   +4     0    01   012  0123 01234
//
// An exclusive scan combines what it gets twice: with its own vector, to pass on, and without.
//
// Cost, P a power of two: log2(P)(alpha + beta n + gamma n). Exclusive: 2 ranks combine nothing;
// from 16 ranks on a round takes gamma n more if that is more than a message. Wins for short
// vectors: it has the fewest rounds, but sends the whole vector in each.
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

// The partners of one round; no_rank where there is none.
struct Round {
  int to = no_rank;
  int from = no_rank;
};

Round round_of(const Call& call, int distance) {
  const int rank = call.callers_rank();
  Round round;
  if (rank + distance < call.size()) round.to = call.place_of(rank + distance);
  if (rank >= distance) round.from = call.place_of(rank - distance);
  return round;
}

// Sends `have` and borrows as much, as far as there is somebody to send to and to borrow from.
ExchangeBorrowAwaiter exchange(Call& call, const Round& round, int distance, Bytes have,
                               Fence after) {
  const std::size_t sent = round.to == no_rank ? 0 : have.size;
  const std::size_t taken = round.from == no_rank ? 0 : have.size;
  return call.exchange_borrow(round.to, round.from, 0, static_cast<std::uint32_t>(distance),
                              have.part(0, sent), taken, after);
}

// When the last of so many ranks has its result. It receives in every round; in the last one from a
// rank that has received in fewer, whose port is busy with the rounds that it only sends in.
double last_result(int ranks, const LinkCost& link, double bytes) {
  if (ranks == 1) return 0;
  const double wire = link.beta * bytes;
  const double work = link.gamma * bytes;
  const int rounds = ceil_log2(ranks);
  const int senders = ranks - (1 << (rounds - 1));
  const double sent = last_result(senders, link, bytes) + (rounds - 1 - ceil_log2(senders)) * wire +
                      link.alpha + wire;
  return std::max((rounds - 1) * (link.alpha + wire + work), sent) + work;
}

}  // namespace

Task<Error> scan_recursive_doubling(Call& call, CollectiveArgs args) {
  Bytes have = args.send;
  Fence complete;
  for (int distance = 1; distance < call.size(); distance <<= 1) {
    const Round round = round_of(call, distance);
    Expected<Borrowed> theirs = co_await exchange(call, round, distance, have, complete);
    if (!theirs) {
      co_await call.until(complete);
      co_return theirs.error();
    }
    if (round.from == no_rank) continue;
    complete = reduce(call, args, args.recv, theirs->data, have.data);
    call.give_back(*theirs, complete);
    have = args.recv;
  }
  if (call.callers_rank() == 0) complete = only_operand(call, args, args.recv, args.send.data);
  co_await call.until(complete);
  co_return Error();
}

Task<Error> exscan_recursive_doubling(Call& call, CollectiveArgs args) {
  const int rank = call.callers_rank();
  const bool passes_on = rank > 0 && rank + 2 < call.size();
  const Scratch with_own(call.compute(), passes_on ? args.send.size : 1);
  Bytes have = args.send;
  Fence combined;
  Fence complete;
  for (int distance = 1; distance < call.size(); distance <<= 1) {
    const Round round = round_of(call, distance);
    Expected<Borrowed> theirs = co_await exchange(call, round, distance, have, combined);
    if (!theirs) {
      co_await call.until(complete);
      co_return theirs.error();
    }
    if (round.from == no_rank) continue;
    if (rank + 2 * distance < call.size()) {
      const Bytes next = with_own.bytes().part(0, args.send.size);
      combined = reduce(call, args, next, theirs->data, have.data);
      have = next;
    }
    complete = distance == 1 ? only_operand(call, args, args.recv, theirs->data)
                             : reduce(call, args, args.recv, theirs->data, args.recv.data);
    call.give_back(*theirs, complete);
  }
  co_await call.until(complete);
  co_return Error();
}

double scan_recursive_doubling_cost(const Shape& shape, const LinkCost& link) {
  return last_result(shape.ranks, link, static_cast<double>(shape.bytes));
}

double exscan_recursive_doubling_cost(const Shape& shape, const LinkCost& link) {
  const auto n = static_cast<double>(shape.bytes);
  const double work = link.gamma * n;
  const double inclusive = last_result(shape.ranks, link, n);
  if (shape.ranks <= 3) return inclusive - work;
  // The first and the last two rounds do not wait for a core that still combines the round before.
  const double busy = std::max(0.0, work - link.alpha - link.beta * n);
  return inclusive + std::max(0, ceil_log2(shape.ranks) - 3) * busy;
}

}  // namespace pith
