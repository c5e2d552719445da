// Binomial scatter: a rank gets the blocks of its subtree in one message and sends each child the
// part for its subtree, the largest subtree first.
//
//   root -> root+4 -> root+6 -> root+7      P = 8, ranks relative to the root
//        -> root+2 -> root+3    ...         [Chan, Heimlich, Purkayastha, van de Geijn 2007]
//
// Long blocks are processed in columns (columns.hpp), so that an inner rank holds at most four
// chunks.
// Cost for P a power of two, blocks of m bytes: log2(P) alpha + (P-1) beta m.
// In place at the root where recv == send + root * count. Only the root uses send.
#include <cmath>

#include "collectives/dense/columns.hpp"

namespace pith {

Task<Error> scatter_binomial(Call& call, CollectiveArgs args) {
  const int p = call.size();
  const int relative = wrap(call.rank() - args.root, p);
  const auto absolute = [&](int place) { return wrap(place + args.root, p); };
  const int bit = binomial_bit(relative, p);
  const auto held = static_cast<std::size_t>(binomial_subtree(relative, p));
  const Columns columns(args, p);
  const Scratch work(call.compute(), held > 1 ? held * columns.block_bytes() : 1);
  for (std::uint32_t k = 0; k < columns.pieces(); ++k) {
    const Bytes own = columns.of(args.recv, 0, k);
    const std::size_t block = own.size;
    const auto held_at = [&](int place, std::size_t blocks) {
      return work.bytes().part(static_cast<std::size_t>(place) * block, blocks * block);
    };
    Fence copied;
    if (relative == 0) {
      copy(call, own, columns.of(args.send, call.callers_rank(), k));
      for (int place = 1; place < p; ++place) {
        copied =
            copy(call, held_at(place, 1), columns.of(args.send, call.rank_at(absolute(place)), k));
      }
    } else {
      Error error =
          co_await call.recv(absolute(relative - bit), 0, k, held > 1 ? held_at(0, held) : own);
      if (error) co_return error;
      if (held > 1) copied = copy(call, own, held_at(0, 1));
    }
    for (int child = bit >> 1; child > 0; child >>= 1) {
      if (relative + child >= p) continue;
      const auto blocks = static_cast<std::size_t>(binomial_subtree(relative + child, p));
      Error error =
          co_await call.send(absolute(relative + child), 0, k, held_at(child, blocks), copied);
      if (error) co_return error;
    }
    co_await call.until(copied);
  }
  co_return Error();
}

namespace {

// When the last rank of a subtree has its block, if the subtree's root has all of them at `start`.
double scattered_time(int rank, int ranks, const LinkCost& link, double block, double start) {
  double last = start;
  for (int child = binomial_bit(rank, ranks) >> 1; child > 0; child >>= 1) {
    if (rank + child >= ranks) continue;
    const double wire = link.beta * block * binomial_subtree(rank + child, ranks);
    start += wire;  // on the port of this rank
    last = std::max(last, scattered_time(rank + child, ranks, link, block, start + link.alpha));
  }
  return std::max(last, start);
}

}  // namespace

double scatter_binomial_cost(const Shape& shape, const LinkCost& link) {
  const BlockPieces pieces(shape);
  const double wire = link.beta * (shape.ranks - 1);
  return pieces.count == 0 ? 0
                           : scattered_time(0, shape.ranks, link, pieces.bytes, 0) +
                                 wire * (static_cast<double>(shape.bytes) - pieces.bytes);
}

}  // namespace pith
