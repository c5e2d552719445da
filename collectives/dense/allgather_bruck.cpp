// Bruck's allgather: the number of blocks that a rank holds doubles in every step.
//
//   step with d = 1, 2, 4, ...: rank r sends the d blocks that it holds to r-d and gets d blocks
//   from r+d; the last step moves only the P-d blocks that are still missing
//                                             [Bruck, Ho, Kipnis, Upfal, Weathersby 1997]
//
// A rank collects the blocks in scratch in the order of their owners' distance, its own block
// first, and copies each to its place in recv at the end. Long blocks are processed in columns
// (columns.hpp), so that scratch stays at four chunks.
// Cost for any P and blocks of m bytes in one piece: ceil(log2 P) alpha + (P-1) beta m. Wins for
// short blocks.
#include "collectives/dense/columns.hpp"

namespace pith {

Task<Error> allgather_bruck(Call& call, CollectiveArgs args) {
  const int p = call.size();
  const Columns columns(args, p);
  const Scratch work(call.compute(), static_cast<std::size_t>(p) * columns.block_bytes());
  std::uint32_t step = 0;
  for (std::uint32_t k = 0; k < columns.pieces(); ++k) {
    const Bytes own = columns.of(args.send, 0, k);
    const auto held = [&](int distance, int blocks) {
      return work.bytes().part(static_cast<std::size_t>(distance) * own.size,
                               static_cast<std::size_t>(blocks) * own.size);
    };
    Fence copied = copy(call, held(0, 1), own);
    for (int distance = 1; distance < p; distance *= 2) {
      const int blocks = std::min(distance, p - distance);
      Error error =
          co_await call.exchange(wrap(call.rank() - distance, p), wrap(call.rank() + distance, p),
                                 0, step++, held(0, blocks), held(distance, blocks), copied);
      if (error) {
        co_await call.until(copied);
        co_return error;
      }
    }
    for (int distance = 0; distance < p; ++distance) {
      const int rank = call.rank_at(wrap(call.rank() + distance, p));
      copied = copy(call, columns.of(args.recv, rank, k), held(distance, 1));
    }
    co_await call.until(copied);
  }
  co_return Error();
}

double allgather_bruck_cost(const Shape& shape, const LinkCost& link) {
  const BlockPieces pieces(shape);
  return pieces.count * ceil_log2(shape.ranks) * link.alpha +
         link.beta * (shape.ranks - 1) * static_cast<double>(shape.bytes);
}

}  // namespace pith
