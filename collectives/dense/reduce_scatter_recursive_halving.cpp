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

constexpr std::uint32_t rounds = 64;  // steps reserved for the messages of one piece
constexpr std::uint32_t fold_round = 62;
constexpr std::uint32_t unfold_round = 63;

// Where the blocks of a piece lie in scratch: for every v < Q the block of rank v, then, if there
// is one, that of rank v + Q.
struct Layout {
  int q;
  int extra;

  explicit constexpr Layout(int ranks)
      : q(floor_power_of_two(ranks)), extra(ranks - floor_power_of_two(ranks)) {}
  // How many blocks the ranks below v keep together.
  constexpr int before(int v) const { return v + std::min(v, extra); }
  constexpr int place_of(int rank) const { return rank < q ? before(rank) : before(rank - q) + 1; }
};

// One piece of all blocks in scratch, of which a rank keeps half as much after each round.
class Piece {
 public:
  Piece(const Layout& layout, Bytes memory, std::size_t block)
      : layout_(layout), memory_(memory), block_(block) {}
  // The blocks that ranks v, v + 1, ..., w - 1 keep.
  Bytes kept(int v, int w) const {
    const auto begin = static_cast<std::size_t>(layout_.before(v));
    const auto end = static_cast<std::size_t>(layout_.before(w));
    return memory_.part(begin * block_, (end - begin) * block_);
  }
  Bytes block_of(int rank) const {
    return memory_.part(static_cast<std::size_t>(layout_.place_of(rank)) * block_, block_);
  }
  Bytes all() const { return kept(0, layout_.q); }

 private:
  const Layout& layout_;
  Bytes memory_;
  std::size_t block_;
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
    Expected<Borrowed> theirs =
        co_await call.exchange_borrow(partner, partner, 0, step, give, keep.size, reduced);
    if (!theirs) co_return theirs.error();
    reduced = upper ? reduce(call, args, keep, theirs->data, keep.data)
                    : reduce(call, args, keep, keep.data, theirs->data);
    call.give_back(*theirs, reduced);
    if (upper) low += half;
  }
  co_await call.until(reduced);
  co_return Error();
}

Fence pack(Call& call, const CollectiveArgs& args, const Columns& columns, const Piece& piece,
           std::uint32_t k) {
  Fence packed;
  for (int rank = 0; rank < call.size(); ++rank) {
    packed = copy(call, piece.block_of(rank), columns.of(args.send, call.rank_at(rank), k));
  }
  return packed;
}

}  // namespace

Task<Error> reduce_scatter_recursive_halving(Call& call, CollectiveArgs args) {
  const Layout layout(call.size());
  const int rank = call.rank();
  const int q = layout.q;
  const Columns columns(args, call.size());
  const Scratch work(call.compute(), static_cast<std::size_t>(call.size()) * columns.block_bytes());
  for (std::uint32_t k = 0; k < columns.pieces(); ++k) {
    const Bytes result = columns.of(args.recv, 0, k);
    const Piece piece(layout, work.bytes(), result.size);
    const std::uint32_t step = k * rounds;
    const Fence packed = pack(call, args, columns, piece, k);
    if (rank >= q) {
      Error error = co_await call.send(rank - q, 0, step + fold_round, piece.all(), packed);
      if (!error) error = co_await call.recv(rank - q, 0, step + unfold_round, result);
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
    complete = copy(call, result, piece.block_of(rank));
    if (rank < layout.extra) {
      error =
          co_await call.send(rank + q, 0, step + unfold_round, piece.block_of(rank + q), complete);
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
