// Recursive halving reduce-scatter: in each round a rank sends the half of its blocks that it does
// not keep to its partner, and adds the partner's contribution to the half that it keeps.
// [Thakur, Rabenseifner, Gropp 2005, section 3.4]
//
//   0123 4567   then   01 23  45 67   then   0 1  2 3  4 5  6 7     blocks that are still kept
//
// Q is the largest power of two up to P. Each rank r >= Q first sends its whole vector to rank
// r - Q, which keeps r's block beside its own and returns it at the end. Sums are kept in scratch;
// long vectors are processed in columns of four chunks (columns.hpp). Lower ranks are the first
// operands.
// Cost for a power of two, blocks of m bytes: log2(P) alpha + (P-1)(beta + gamma) m. Wins for short
// vectors.
#include <cmath>

#include "collectives/dense/columns.hpp"

namespace pith {

namespace {

constexpr std::uint32_t piece_steps = 64;  // steps reserved for the messages of one piece
constexpr std::uint32_t fold_round = 62;
constexpr std::uint32_t unfold_round = 63;

// Which blocks the ranks below Q keep: each its own, and beside it that of the rank Q above it, if
// there is one. In this order they lie in scratch.
struct Layout {
  int q;
  int extra;

  explicit constexpr Layout(int ranks)
      : q(floor_power_of_two(ranks)), extra(ranks - floor_power_of_two(ranks)) {}
  // How many blocks the ranks below v keep together.
  constexpr int before(int v) const { return v + std::min(v, extra); }
};

// One piece of all blocks in scratch, of which a rank keeps half as much after each round.
class Piece {
 public:
  Piece(const Call& call, const Layout& layout, const Columns& columns, std::uint32_t k,
        Bytes memory)
      : call_(call), layout_(layout), columns_(columns), k_(k), memory_(memory) {}
  // The blocks that ranks v, v + 1, ..., w - 1 keep.
  Bytes kept(int v, int w) const { return memory_.part(bytes_between(0, v), bytes_between(v, w)); }
  Bytes block_of(int rank) const {
    const int keeper = rank < layout_.q ? rank : rank - layout_.q;
    const std::size_t beside = rank < layout_.q ? 0 : bytes_of(keeper);
    return memory_.part(bytes_between(0, keeper) + beside, bytes_of(rank));
  }
  Bytes all() const { return kept(0, layout_.q); }
  // Copies the blocks of `send` here. Returns the last copy's fence.
  Fence pack(Call& call, Bytes send) const {
    Fence packed;
    std::size_t at = 0;
    const auto add = [&](int rank) {
      const Bytes block = columns_.of(send, call.rank_at(rank), k_);
      if (block.size > 0) packed = copy(call, memory_.part(at, block.size), block);
      at += block.size;
    };
    for (int v = 0; v < layout_.q; ++v) {
      add(v);
      if (v < layout_.extra) add(v + layout_.q);
    }
    return packed;
  }

 private:
  std::size_t bytes_of(int rank) const { return columns_.bytes_of(call_.rank_at(rank), k_); }
  // Bytes of what ranks v, v + 1, ..., w - 1 keep.
  std::size_t bytes_between(int v, int w) const {
    const auto blocks = static_cast<std::size_t>(layout_.before(w) - layout_.before(v));
    if (columns_.are_even()) return blocks * bytes_of(0);
    std::size_t bytes = 0;
    for (int u = v; u < w; ++u) bytes += bytes_of(u);
    for (int u = v; u < std::min(w, layout_.extra); ++u) bytes += bytes_of(u + layout_.q);
    return bytes;
  }

  const Call& call_;
  const Layout& layout_;
  const Columns& columns_;
  std::uint32_t k_;
  Bytes memory_;
};

// Adds the vector of rank `from`, which is above the largest power of two.
Task<Error> fold(Call& call, const CollectiveArgs& args, int from, Bytes all, std::uint32_t step,
                 Fence packed) {
  Expected<Borrowed> theirs = co_await call.borrow(from, 0, step, all.size);
  if (!theirs) {
    co_await call.until(packed);
    co_return theirs.error();
  }
  const Fence reduced = reduce(call, args, all, all.data, theirs->data);
  call.give_back(*theirs, reduced);
  co_await call.until(reduced);
  co_return Error();
}

Task<Error> halve(Call& call, const CollectiveArgs& args, const Piece& piece, int q,
                  std::uint32_t first_step, Fence reduced) {
  std::uint32_t step = first_step;
  int low = 0;
  for (int half = q / 2; half > 0; half /= 2, ++step) {
    const bool upper = (call.rank() & half) != 0;
    const int partner = call.rank() ^ half;
    const Bytes keep = upper ? piece.kept(low + half, low + 2 * half) : piece.kept(low, low + half);
    const Bytes give = upper ? piece.kept(low, low + half) : piece.kept(low + half, low + 2 * half);
    Expected<Borrowed> theirs = co_await call.exchange_borrow(give.size > 0 ? partner : no_rank,
                                                              keep.size > 0 ? partner : no_rank, 0,
                                                              step, give, keep.size, reduced);
    if (!theirs) {
      co_await call.until(reduced);  // nobody has waited for it if there is nothing to give
      co_return theirs.error();
    }
    if (upper) low += half;
    if (keep.size == 0) continue;
    reduced = upper ? reduce(call, args, keep, theirs->data, keep.data)
                    : reduce(call, args, keep, keep.data, theirs->data);
    call.give_back(*theirs, reduced);
  }
  co_await call.until(reduced);
  co_return Error();
}

}  // namespace

Task<Error> reduce_scatter_recursive_halving(Call& call, CollectiveArgs args) {
  const Layout layout(call.size());
  const int rank = call.rank();
  const int q = layout.q;
  const Columns columns(args, call.size());
  const Scratch work(call.compute(), columns.all_bytes());
  for (std::uint32_t k = 0; k < columns.pieces(); ++k) {
    const Bytes result = columns.of_whole(args.recv, call.callers_rank(), k);
    const Piece piece(call, layout, columns, k, work.bytes());
    const std::uint32_t step = k * piece_steps;
    const Fence packed = piece.pack(call, args.send);
    if (rank >= q) {
      Error error = co_await call.send(rank - q, 0, step + fold_round, piece.all(), packed);
      if (!error && result.size > 0) {
        error = co_await call.recv(rank - q, 0, step + unfold_round, result);
      }
      if (error) co_return error;
      continue;
    }
    if (rank < layout.extra) {
      Error error = co_await fold(call, args, rank + q, piece.all(), step + fold_round, packed);
      if (error) co_return error;
    }
    Error error = co_await halve(call, args, piece, q, step, packed);
    if (error) co_return error;
    Fence complete = finish(call, args, piece.kept(rank, rank + 1), {});
    if (result.size > 0) complete = copy(call, result, piece.block_of(rank));
    const Bytes other = rank < layout.extra ? piece.block_of(rank + q) : Bytes();
    if (other.size > 0) {
      error = co_await call.send(rank + q, 0, step + unfold_round, other, complete);
      if (error) co_return error;
    }
    co_await call.until(complete);
  }
  co_return Error();
}

double reduce_scatter_recursive_halving_cost(const Shape& shape, const LinkCost& link) {
  const BlockPieces pieces(shape);
  const Layout layout(shape.ranks);
  const double byte = link.beta + link.gamma;
  // With at most Q/2 extra ranks, ranks that take in no extra vector do not wait for those that do.
  const bool many = 2 * layout.extra > layout.q;
  double blocks = 0;
  for (int half = layout.q / 2; half > 0; half /= 2) blocks += many ? layout.before(half) : half;
  double piece = ceil_log2(layout.q) * link.alpha + blocks * byte * pieces.bytes;
  if (layout.extra > 0) piece += link.alpha + shape.ranks * byte * pieces.bytes;
  if (many) piece += link.alpha + link.beta * pieces.bytes;
  return pieces.count * piece;
}

}  // namespace pith
