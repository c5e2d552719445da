// The two halves of a direct reduction: every rank's segment of a vector goes to that rank, and its
// result to all others. All messages of a half are in flight at once.
#pragma once

#include <algorithm>

#include "collectives/patterns.hpp"
#include "collectives/strands.hpp"

namespace pith {

// Names the messages of one exchange. Messages of both halves may be on their way at once, so the
// second half has a lane of its own.
struct SegmentMessages {
  std::uint16_t lane = 0;  // of the first half; the second uses the next one
  std::uint32_t step = 0;
  // Longer segments go in several messages, whose length has 32 bits. Tests lower it.
  std::size_t most_bytes = message_bytes_max;
};

// Exchanges blocks with the two ranks at `distance`. Empty blocks are not sent. Both ends know the
// number of messages of a block; they have one name, since they arrive in order.
inline Task<Error> trade_segments(Call& call, SegmentMessages messages, int distance, Bytes out,
                                  Bytes into, Fence ready) {
  const int to = wrap(call.rank() + distance, call.size());
  const int from = wrap(call.rank() - distance, call.size());
  const std::size_t most = messages.most_bytes;
  for (std::size_t k = 0; k < chunks_in(std::max(out.size, into.size), most); ++k) {
    const Range leaves = chunk_of({0, out.size}, most, k);
    const Range comes = chunk_of({0, into.size}, most, k);
    const Bytes data = out.part(leaves.begin, leaves.size);
    const Bytes room = into.part(comes.begin, comes.size);
    Error error;
    if (data.size == 0) {
      error = co_await call.recv(from, messages.lane, messages.step, room);
    } else if (room.size == 0) {
      error = co_await call.send(to, messages.lane, messages.step, data, ready);
    } else {
      error = co_await call.exchange(to, from, messages.lane, messages.step, data, room, ready);
    }
    if (error) co_return error;
  }
  co_return Error();
}

// Every rank's segment in place, and room for what the others have for this rank's.
template <class Segments>  // Bytes operator[](int rank) const
class SegmentExchange {
 public:
  // `segments` outlives the exchange.
  SegmentExchange(Call& call, const Segments& segments, SegmentMessages messages)
      : call_(call),
        segments_(segments),
        messages_(messages),
        own_(segments[call.rank()]),
        gathered_(call.compute(), std::max<std::size_t>(own_.size * others(), 1)) {}

  // Sends the segments to their ranks, once `ready` is reached.
  Task<Error> scatter(Fence ready) {
    return with_every_other(call_, [this, ready](int distance) {
      const int to = wrap(call_.rank() + distance, call_.size());
      return trade_segments(call_, messages_, distance, segments_[to], room_at(distance), ready);
    });
  }
  // What `rank` has for this rank's segment.
  std::byte* of(int rank) const {
    return rank == call_.rank() ? own_.data : room_at(wrap(call_.rank() - rank, call_.size())).data;
  }
  // Sends this rank's segment to all others, and receives theirs.
  Task<Error> gather() {
    SegmentMessages back = messages_;
    ++back.lane;
    return with_every_other(call_, [this, back](int distance) {
      const int from = wrap(call_.rank() - distance, call_.size());
      return trade_segments(call_, back, distance, own_, segments_[from], Fence());
    });
  }
  // Of both halves, each way.
  std::uint64_t bytes(std::size_t all) const { return all - own_.size + others() * own_.size; }

 private:
  std::size_t others() const { return static_cast<std::size_t>(call_.size() - 1); }
  Bytes room_at(int distance) const {
    return gathered_.bytes().part(static_cast<std::size_t>(distance - 1) * own_.size, own_.size);
  }

  Call& call_;
  const Segments& segments_;
  SegmentMessages messages_;
  Bytes own_;
  Scratch gathered_;
};

}  // namespace pith
