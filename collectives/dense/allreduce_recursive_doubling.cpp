// Recursive doubling: in round i every rank exchanges its partial sum with the rank whose number
// differs in bit i, and adds the two. [Thakur, Rabenseifner, Gropp 2005, section 4]
//
//   0-1 2-3 4-5 6-7   then   0-2 1-3 4-6 5-7   then   0-4 1-5 2-6 3-7
//
// Q is the largest power of two up to P. Each rank r >= Q first sends its vector to rank r - Q, and
// gets the result from it at the end. Cost: log2(Q)(alpha + beta n + gamma n); P not a power of two
// adds about two (alpha + beta n) and one gamma n. Wins for short vectors: it has the fewest
// rounds. The lower rank's sum is always the first operand: all ranks get the same bits.
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

constexpr std::uint32_t extra_step = 1000;
constexpr std::uint32_t extra_back_step = 1001;

}  // namespace

Task<Error> allreduce_recursive_doubling(Call& call, CollectiveArgs args) {
  const int q = floor_power_of_two(call.size());
  const int extra = call.size() - q;
  const int rank = call.rank();

  if (rank >= q) {
    Error error = co_await call.send(rank - q, 0, extra_step, args.send);
    if (error) co_return error;
    co_return co_await call.recv(rank - q, 0, extra_back_step, args.recv);
  }

  Bytes have = args.send;
  Fence reduced;
  if (rank < extra) {
    Expected<Borrowed> theirs = co_await call.borrow(rank + q, 0, extra_step, have.size);
    if (!theirs) co_return theirs.error();
    reduced = reduce(call, args, args.recv, have.data, theirs->data);
    call.give_back(*theirs, reduced);
    have = args.recv;
  }
  for (int bit = 1; bit < q; bit <<= 1) {
    const int partner = rank ^ bit;
    const auto step = static_cast<std::uint32_t>(bit);
    Expected<Borrowed> theirs =
        co_await call.exchange_borrow(partner, partner, 0, step, have, have.size, reduced);
    if (!theirs) co_return theirs.error();
    reduced = rank < partner ? reduce(call, args, args.recv, have.data, theirs->data)
                             : reduce(call, args, args.recv, theirs->data, have.data);
    call.give_back(*theirs, reduced);
    have = args.recv;
  }
  reduced = finish(call, args, args.recv, reduced);
  if (rank < extra) co_return co_await call.send(rank + q, 0, extra_back_step, args.recv, reduced);
  co_await call.until(reduced);
  co_return Error();
}

double allreduce_recursive_doubling_cost(const Shape& shape, const LinkCost& link) {
  const int q = floor_power_of_two(shape.ranks);
  const auto n = static_cast<double>(shape.bytes);
  const double message = link.alpha + link.beta * n;
  const double rounds = ceil_log2(q) * (message + link.gamma * n);
  const int extra = shape.ranks - q;
  if (extra == 0) return rounds;
  // With at most Q/2 extra ranks, taking in their vectors overlaps the first round of the others.
  const double delays = 2 * extra > q ? 2 : 1;
  return rounds + delays * link.alpha + 2 * link.beta * n + link.gamma * n;
}

}  // namespace pith
