// Binomial gather: every rank collects the blocks of its subtree and sends them to its parent in
// one message.
//
//   root <- root+1                   P = 8, ranks relative to the root. The subtree of rank r is
//        <- root+2 <- root+3         r, ..., r + b - 1, where b is the lowest bit set in r.
//        <- root+4 <- root+5 ...     [Chan, Heimlich, Purkayastha, van de Geijn 2007]
//
// Long blocks are processed in columns (columns.hpp), so that an inner rank holds at most four
// chunks.
// Cost for P a power of two, blocks of m bytes: log2(P) alpha + (P-1) beta m.
// In place at the root where send == recv + root * count. Only the root uses recv.
#include <cmath>
#include <vector>

#include "collectives/dense/columns.hpp"

namespace pith {

Task<Error> gather_binomial(Call& call, CollectiveArgs args) {
  const int p = call.size();
  const int relative = wrap(call.rank() - args.root, p);
  const auto absolute = [&](int place) { return wrap(place + args.root, p); };
  const int bit = binomial_bit(relative, p);
  const auto held = static_cast<std::size_t>(binomial_subtree(relative, p));
  const Columns columns(args, p);
  const Scratch work(call.compute(), held > 1 ? held * columns.block_bytes() : 1);
  for (std::uint32_t k = 0; k < columns.pieces(); ++k) {
    const Bytes own = columns.of(args.send, 0, k);
    const std::size_t block = own.size;
    const auto collected = [&](int place, std::size_t blocks) {
      return work.bytes().part(static_cast<std::size_t>(place) * block, blocks * block);
    };
    Bytes result = own;
    Fence copied;
    if (relative == 0) {
      copied = copy(call, columns.of(args.recv, call.callers_rank(), k), own);
    } else if (held > 1) {
      copied = copy(call, collected(0, 1), own);
      result = collected(0, held);
    }
    for (int child = 1; child < bit && relative + child < p; child <<= 1) {
      const auto blocks = static_cast<std::size_t>(binomial_subtree(relative + child, p));
      Error error = co_await call.recv(absolute(relative + child), 0, k, collected(child, blocks));
      if (error) {
        co_await call.until(copied);
        co_return error;
      }
    }
    if (relative != 0) {
      Error error = co_await call.send(absolute(relative - bit), 0, k, result, copied);
      if (error) co_return error;
      continue;
    }
    for (int place = 1; place < p; ++place) {
      copied =
          copy(call, columns.of(args.recv, call.rank_at(absolute(place)), k), collected(place, 1));
    }
    co_await call.until(copied);
  }
  co_return Error();
}

namespace {

// When a rank has the blocks of its subtree. The messages of its children come through one port, in
// the order in which they are sent.
double collected_time(int rank, int ranks, const LinkCost& link, double block) {
  struct Arrival {
    double time;
    double bytes;
  };
  std::vector<Arrival> arrivals;
  for (int child = 1; child < binomial_bit(rank, ranks) && rank + child < ranks; child <<= 1) {
    arrivals.push_back({collected_time(rank + child, ranks, link, block) + link.alpha,
                        block * binomial_subtree(rank + child, ranks)});
  }
  std::ranges::sort(arrivals, {}, &Arrival::time);
  double port = 0;
  for (const Arrival& arrival : arrivals) {
    port = std::max(port, arrival.time) + link.beta * arrival.bytes;
  }
  return port;
}

}  // namespace

double gather_binomial_cost(const Shape& shape, const LinkCost& link) {
  const BlockPieces pieces(shape);
  const double wire = link.beta * (shape.ranks - 1);
  return pieces.count == 0 ? 0
                           : collected_time(0, shape.ranks, link, pieces.bytes) +
                                 wire * (static_cast<double>(shape.bytes) - pieces.bytes);
}

}  // namespace pith
