// Binomial broadcast: a rank that has the vector sends it to its children, largest subtree first.
//
//   root -> root+4 -> root+6 -> root+7      P = 8, ranks relative to the root
//        -> root+2 -> root+3    ...
//
// Cost: ceil(log2 P)(alpha + beta n) for P a power of two. Wins for short vectors.
#include "collectives/typed_span.hpp"

namespace pith {

Task<Error> broadcast_binomial(Call& call, CollectiveArgs args) {
  const int p = call.size();
  const int relative = wrap(call.rank() - args.root, p);
  const int bit = binomial_bit(relative, p);
  Bytes have = args.send;
  if (relative != 0) {
    const int parent = wrap(relative - bit + args.root, p);
    Error error = co_await call.recv(parent, 0, 0, args.recv);
    if (error) co_return error;
    have = args.recv;
  }
  for (int child = bit >> 1; child > 0; child >>= 1) {
    if (relative + child >= p) continue;
    Error error = co_await call.send(wrap(relative + child + args.root, p), 0, 0, have);
    if (error) co_return error;
  }
  if (relative == 0) co_await call.until(copy(call, args.recv, args.send));
  co_return Error();
}

double broadcast_binomial_cost(const Shape& shape, const LinkCost& link) {
  const int p = shape.ranks;
  const double bytes_time = link.beta * static_cast<double>(shape.bytes);
  // A rank gets the vector after its parent has it and has sent it to the earlier children.
  double last = 0;
  for (int rank = 1; rank < p; ++rank) {
    double time = 0;
    for (int below = rank; below != 0; below &= below - 1) {
      const int bit = below & -below;
      const int parent = below & (below - 1);
      int turn = 0;
      for (int child = binomial_bit(parent, p) >> 1; child >= bit; child >>= 1) {
        turn += parent + child < p;
      }
      time += link.alpha + turn * bytes_time;
    }
    last = std::max(last, time);
  }
  return last;
}

}  // namespace pith
