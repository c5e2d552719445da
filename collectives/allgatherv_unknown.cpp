// Ring allgather of messages whose lengths only their senders know: compressed gradients.
//
// Messages go round the ring in chunks; a chunk shorter than the chunk size ends its message (an
// empty one where the length is a multiple). Nobody waits for a count: a rank forwards each chunk
// while the next one arrives. Two strands and a bounded channel; its bound, and the wire's, hold a
// fast neighbour back. Cost with messages of m < chunk bytes: (P-1)(alpha + beta m).
#include "collectives/allgatherv_unknown.hpp"

#include <fmt/format.h>

#include "collectives/patterns.hpp"

namespace pith {

namespace {

struct Piece {
  int origin = 0;
  std::size_t offset = 0;
  std::size_t length = 0;
};

constexpr std::size_t depth = 4;
using Pieces = Channel<Piece, depth>;

class Slots {
 public:
  explicit Slots(const UnknownGather& args) : args_(args) {}
  Bytes at(Piece piece) const {
    return args_.recv.part(static_cast<std::size_t>(piece.origin) * args_.capacity + piece.offset,
                           piece.length);
  }
  std::size_t room(Piece piece) const {
    return std::min(args_.chunk_bytes, args_.capacity - piece.offset);
  }

 private:
  const UnknownGather& args_;
};

Task<Error> take_pieces(Call& call, const UnknownGather& args, Pieces& pieces) {
  const int p = call.size();
  const int previous = wrap(call.rank() - 1, p);
  const Slots slots(args);
  std::uint32_t step = 0;
  for (int d = 1; d < p; ++d) {
    Piece piece{wrap(call.rank() - d, p), 0, 0};
    for (bool last = false; !last;) {
      piece.length = slots.room(piece);
      const Expected<std::size_t> came =
          co_await call.recv_some(previous, 0, step++, slots.at(piece));
      if (!came) {
        pieces.close();
        co_return came.error();
      }
      piece.length = *came;
      last = piece.length < args.chunk_bytes;
      args.lengths[static_cast<std::size_t>(piece.origin)] = piece.offset + piece.length;
      if (d < p - 1) {
        const bool open = co_await pieces.push(piece);
        if (!open) co_return Error();
      }
      piece.offset += piece.length;
    }
  }
  pieces.close();
  co_return Error();
}

Task<Error> give_pieces(Call& call, const UnknownGather& args, Pieces& pieces) {
  const int next = wrap(call.rank() + 1, call.size());
  const Slots slots(args);
  std::uint32_t step = 0;
  Error error;
  for (std::size_t offset = 0; offset <= args.send.size && !error; offset += args.chunk_bytes) {
    const std::size_t length = std::min(args.chunk_bytes, args.send.size - offset);
    error = co_await call.send(next, 0, step++, args.send.part(offset, length));
  }
  while (!error) {
    const std::optional<Piece> piece = co_await pieces.pop();
    if (!piece) co_return Error();
    error = co_await call.send(next, 0, step++, slots.at(*piece));
  }
  pieces.close();
  co_return error;
}

}  // namespace

Task<Error> allgatherv_unknown(Call& call, UnknownGather args) {
  if (args.send.size > args.capacity) {
    co_return call.fail(Error(
        Code::invalid_argument,
        fmt::format("message of {} bytes, at most {} were agreed", args.send.size, args.capacity),
        call.rank()));
  }
  const auto own = static_cast<std::size_t>(call.rank());
  args.lengths[own] = args.send.size;
  Fence copied;
  std::byte* slot = args.recv.data + own * args.capacity;
  if (slot != args.send.data && args.send.size > 0) {
    copied = call.run<CopyKernel>({slot, args.send.data, args.send.size});
  }
  if (call.size() > 1) {
    Pieces pieces(call.scheduler());
    std::array<Task<Error>, 2> strands{take_pieces(call, args, pieces),
                                       give_pieces(call, args, pieces)};
    WhenAll both = when_all(strands);
    Error error = co_await both;
    if (error) co_return error;
  }
  co_await call.until(copied);
  co_return Error();
}

}  // namespace pith
