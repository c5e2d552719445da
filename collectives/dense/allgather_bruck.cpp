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

namespace {

// One piece of the blocks that this rank holds, in the order of their owners' distance.
class HeldPiece {
 public:
  HeldPiece(const Call& call, const Columns& columns, std::uint32_t k, Bytes memory)
      : call_(call),
        columns_(columns),
        k_(k),
        block_(columns.bytes_of(call.callers_rank(), k)),
        memory_(memory) {}

  Bytes of(int distance, int blocks) const {
    const std::size_t begin = bytes_between(0, distance);
    return memory_.part(begin, bytes_between(distance, distance + blocks));
  }
  // Copies each block to its place. Returns the last copy's fence, or `after` if there is none.
  Fence copy_to(Call& call, Bytes recv, Fence after) const {
    std::size_t at = 0;
    for (int distance = 0; distance < call.size(); ++distance) {
      const Bytes block = columns_.of(recv, owner(distance), k_);
      if (block.size > 0) after = copy(call, block, memory_.part(at, block.size));
      at += block.size;
    }
    return after;
  }

 private:
  int owner(int distance) const {
    return call_.rank_at(wrap(call_.rank() + distance, call_.size()));
  }
  // Bytes of the blocks at distance `first` or more, but below `last`.
  std::size_t bytes_between(int first, int last) const {
    if (columns_.are_even()) return static_cast<std::size_t>(last - first) * block_;
    std::size_t bytes = 0;
    for (int d = first; d < last; ++d) bytes += columns_.bytes_of(owner(d), k_);
    return bytes;
  }

  const Call& call_;
  const Columns& columns_;
  std::uint32_t k_;
  std::size_t block_;  // bytes of this rank's
  Bytes memory_;
};

}  // namespace

Task<Error> allgather_bruck(Call& call, CollectiveArgs args) {
  const int p = call.size();
  const Columns columns(args, p);
  const Scratch work(call.compute(), columns.all_bytes());
  std::uint32_t step = 0;
  for (std::uint32_t k = 0; k < columns.pieces(); ++k) {
    const HeldPiece held(call, columns, k, work.bytes());
    Fence copied = copy(call, held.of(0, 1), columns.of_whole(args.send, call.callers_rank(), k));
    for (int distance = 1; distance < p; distance *= 2, ++step) {
      const int blocks = std::min(distance, p - distance);
      const Bytes out = held.of(0, blocks);
      const Bytes in = held.of(distance, blocks);
      Error error = co_await call.exchange(out.size > 0 ? wrap(call.rank() - distance, p) : no_rank,
                                           in.size > 0 ? wrap(call.rank() + distance, p) : no_rank,
                                           0, step, out, in, copied);
      if (error) {
        co_await call.until(copied);
        co_return error;
      }
    }
    co_await call.until(held.copy_to(call, args.recv, copied));
  }
  co_return Error();
}

double allgather_bruck_cost(const Shape& shape, const LinkCost& link) {
  const BlockPieces pieces(shape);
  return pieces.count * ceil_log2(shape.ranks) * link.alpha +
         link.beta * (shape.ranks - 1) * static_cast<double>(shape.bytes);
}

}  // namespace pith
