// The sending half of a TCP connection to one peer: which bytes go next on which stream.
//
// Messages wait in one queue. Stream 0 takes them in order; those of `cut_bytes` and more are only
// announced there, and their pieces go to whichever of this end's streams has room. Knows no
// socket.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/scheduler.hpp"
#include "transport/tcp/tcp_frames.hpp"

namespace pith {

struct TcpCutting {
  std::size_t cut_bytes;    // messages of this size and more are cut
  std::size_t piece_bytes;  // into pieces of this size
};

// The streams that bring the pieces of one end, a bit each.
using StreamSet = std::uint32_t;
constexpr StreamSet all_streams = ~StreamSet{0};

// Those of the end with the `higher` rank, or of the other one. Streams are spread over `rails`
// interfaces in turn; each end has as many of every interface.
//
// A connection that carries much both ways is slow: its ends lock it against each other, so what
// comes while one writes waits (loopback, 1 MiB each way, on Zen 3: 1.9 times the time of two
// connections). Where the round trip is long nothing of that is felt, and more streams recover
// sooner from losses.
StreamSet streams_of_end(int streams, int rails, bool higher, double round_trip_s);

// A message that could not be sent at once.
struct TcpOutgoing {
  Send* send = nullptr;  // null: aborted, `copy` holds the bytes
  Header header;
  const std::byte* data = nullptr;
  std::size_t cut = 0;      // bytes handed to streams
  std::size_t written = 0;  // bytes on the wire
  std::uint32_t message = 0;
  std::unique_ptr<std::byte[]> copy;
  TcpOutgoing* next = nullptr;
};

class TcpOutgoingPool {
 public:
  TcpOutgoing& take(Send& send);
  void give(TcpOutgoing& outgoing);

 private:
  std::vector<std::unique_ptr<TcpOutgoing>> all_;
  std::vector<TcpOutgoing*> spare_;
};

// A frame that is being written to one stream.
class TcpWriter {
 public:
  bool idle() const { return size_ == 0; }
  std::span<const iovec> rest();
  // `bytes` of rest() have been written; true at the end of the frame.
  bool wrote(std::size_t bytes);
  TcpOutgoing* outgoing() const { return outgoing_; }
  void load(const MessageOpening& opening, std::size_t opening_bytes, TcpOutgoing* outgoing,
            std::size_t offset, std::size_t bytes);
  void clear() { size_ = done_ = 0; }

 private:
  MessageOpening opening_;
  std::size_t opening_bytes_ = 0;
  TcpOutgoing* outgoing_ = nullptr;
  std::size_t offset_ = 0;
  std::size_t size_ = 0;  // of the frame, including its opening
  std::size_t done_ = 0;
  std::array<iovec, 2> iovecs_{};
};

class TcpOutbox {
 public:
  TcpOutbox(TcpOutgoingPool& pool, Scheduler& scheduler, TcpCutting cutting, int streams)
      : pool_(pool),
        scheduler_(scheduler),
        cutting_(cutting),
        writers_(static_cast<std::size_t>(streams)) {
    begun_.reserve(64);
    shared_.reserve(sharing_max);
  }

  // Of the streams that pieces go to; all, unless it is called.
  void use(StreamSet streams) { own_ = streams; }

  bool empty() const { return pending_ == 0; }
  // Whether any send is waited for, besides copies of aborted messages.
  bool awaited() const { return waited_ != 0; }

  void push(Send& send);
  // A message of which `written` bytes, counting its opening, are already on stream 0.
  // Precondition: empty().
  void push_rest(Send& send, const MessageOpening& opening, std::size_t written);

  // Bytes to write to a stream; empty where there are none.
  std::span<const iovec> next(int stream);
  // Returns the send that is complete with these bytes, or null.
  Send* wrote(int stream, std::size_t bytes);

  // Ends sends of the communicator (null: all) with the error. Begun messages are completed from a
  // copy, unless the connection is gone.
  void quiesce(const CommState* comm, const Error& error, bool connected);

  // Sends that are waited for, in order.
  void for_each_sending(const std::function<void(const Send&)>& see) const;

 private:
  static constexpr int sharing_max = 8;  // bounds what a peer must track

  bool owns(int stream) const { return ((own_ >> stream) & 1) != 0; }
  bool load(int stream);
  void load_message(TcpWriter& writer);
  void load_piece(TcpWriter& writer);
  TcpOutgoing& take(Send& send);
  Send* end(TcpOutgoing& outgoing);
  void detach(TcpOutgoing& outgoing, const Error& error, bool needed);

  TcpOutgoingPool& pool_;
  Scheduler& scheduler_;
  TcpCutting cutting_;
  StreamSet own_ = all_streams;
  std::vector<TcpWriter> writers_;
  std::vector<TcpOutgoing*> begun_;   // bytes are on the wire or in a writer
  std::vector<TcpOutgoing*> shared_;  // announced, not yet wholly given to streams
  TcpOutgoing* queue_ = nullptr;
  TcpOutgoing* queue_tail_ = nullptr;
  std::uint32_t messages_ = 0;
  std::size_t pending_ = 0;
  std::size_t waited_ = 0;
};

// The opening of a message that is sent in one frame.
MessageOpening whole_opening(const Header& header);

}  // namespace pith
