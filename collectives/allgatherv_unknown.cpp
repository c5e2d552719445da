// Ring allgather of messages whose lengths only their senders know: compressed gradients.
//
// Messages go round the ring in chunks; a chunk shorter than the chunk size ends its message (an
// empty one where the length is a multiple). Nobody waits for a count: one strand takes chunks, and
// another one passes on what has come. The first never waits for the second: all chunks have their
// place, and a ring in which every rank first had to send would stand still once its wires are
// full. Cost with messages of m < chunk bytes: (P-1)(alpha + beta m); long ones fill the wires,
// alpha + (P-1) beta m.
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

// What the taking strand tells the passing one: which message of the ring it is in (its distance
// from here), and whether it has ended. How much of the message is there says args.lengths.
class Progress {
 public:
  explicit Progress(Scheduler& scheduler) : scheduler_(scheduler) {}
  int distance = 0;
  bool over = false;
  bool failed = false;

  // Whether all of a piece is there; `piece.length` is what a piece has that is not the last one.
  bool has(int d, std::size_t arrived, const Piece& piece) const {
    if (over || d < distance) return true;
    return d == distance && arrived - piece.offset >= piece.length;
  }

  class Moved {
   public:
    explicit Moved(Progress& progress) : progress_(progress) {}
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> waiter) { progress_.waiter_ = waiter; }
    void await_resume() const {}

   private:
    Progress& progress_;
  };
  Moved moved() { return Moved(*this); }
  void move() {
    if (waiter_) scheduler_.make_ready(std::exchange(waiter_, nullptr));
  }

 private:
  Scheduler& scheduler_;
  std::coroutine_handle<> waiter_;
};

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

Task<Error> take_pieces(Call& call, const UnknownGather& args, Progress& progress) {
  const int p = call.size();
  const int previous = wrap(call.rank() - 1, p);
  const Slots slots(args);
  std::uint32_t step = 0;
  Error error;
  for (int d = 1; d < p && !error; ++d) {
    Piece piece{call.rank_at(wrap(call.rank() - d, p)), 0, 0};
    std::size_t& length = args.lengths[static_cast<std::size_t>(piece.origin)];
    length = 0;
    progress.distance = d;
    for (bool last = false; !last;) {
      piece.length = slots.room(piece);
      const Expected<std::size_t> came =
          co_await call.recv_some(previous, 0, step++, slots.at(piece));
      error = came.error();
      if (error) break;
      last = *came < args.chunk_bytes;
      piece.offset = length += *came;
      progress.move();
    }
  }
  progress.over = !error;
  progress.failed = static_cast<bool>(error);
  progress.move();
  co_return error;
}

Task<Error> give_pieces(Call& call, const UnknownGather& args, Progress& progress) {
  const int p = call.size();
  const int next = wrap(call.rank() + 1, p);
  const Slots slots(args);
  std::uint32_t step = 0;
  for (std::size_t offset = 0; offset <= args.send.size; offset += args.chunk_bytes) {
    const std::size_t length = std::min(args.chunk_bytes, args.send.size - offset);
    Error error = co_await call.send(next, 0, step++, args.send.part(offset, length));
    if (error) co_return error;
  }
  for (int d = 1; d < p - 1; ++d) {
    Piece piece{call.rank_at(wrap(call.rank() - d, p)), 0, args.chunk_bytes};
    const std::size_t& arrived = args.lengths[static_cast<std::size_t>(piece.origin)];
    for (; piece.length == args.chunk_bytes; piece.offset += piece.length) {
      while (!progress.has(d, arrived, piece)) {
        if (progress.failed) co_return Error();
        co_await progress.moved();
      }
      piece.length = std::min(args.chunk_bytes, arrived - piece.offset);
      Error error = co_await call.send(next, 0, step++, slots.at(piece));
      if (error) co_return error;
    }
  }
  co_return Error();
}

}  // namespace

Task<Error> allgatherv_unknown(Call& call, UnknownGather args) {
  if (args.send.size > args.capacity) {
    co_return call.fail(Error(
        Code::invalid_argument,
        fmt::format("message of {} bytes, at most {} were agreed", args.send.size, args.capacity),
        call.callers_rank()));
  }
  const auto own = static_cast<std::size_t>(call.callers_rank());
  args.lengths[own] = args.send.size;
  Fence copied;
  std::byte* slot = args.recv.data + own * args.capacity;
  if (slot != args.send.data && args.send.size > 0) {
    copied = call.run<CopyKernel>({slot, args.send.data, args.send.size});
  }
  Error error;
  if (call.size() > 1) {
    Progress progress(call.scheduler());
    std::array<Task<Error>, 2> strands{take_pieces(call, args, progress),
                                       give_pieces(call, args, progress)};
    error = co_await when_all(strands);
  }
  co_await call.until(copied);
  co_return error;
}

// A rank begins to pass on a message when its first chunk is there and the wire is free.
double allgatherv_unknown_cost(int ranks, std::size_t bytes, std::size_t chunk_bytes,
                               const LinkCost& link) {
  if (ranks == 1) return 0;
  const double wire = link.beta * static_cast<double>(bytes);
  const double first = link.alpha + link.beta * static_cast<double>(std::min(bytes, chunk_bytes));
  return (ranks - 2) * std::max(first, wire) + link.alpha + wire;
}

}  // namespace pith
