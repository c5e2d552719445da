// The sending half of a TCP connection to one peer: which bytes go next on which stream.
//
// Messages wait in one queue. One stream takes them in order. Long ones are only announced there,
// and their pieces go to whichever stream has room; or, on one host, that stream is another one
// while there are long ones. Knows no socket.
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
  std::size_t cut_bytes;    // messages of this size and more are long: they are cut
  std::size_t piece_bytes;  // into pieces of this size
  int long_stream = -1;     // if it is one, long messages are not cut, but go there
};

// The stream for the long messages of one end of a pair on one host, where the other end sends
// none. There the kernel does what a packet needs at both ends while it is sent, and a connection
// that carries much both ways has its ends wait for each other (Zen 3, 1 MiB each way: 1.9 times
// the time of two connections). For short messages one connection is faster: acknowledgements
// travel with messages. Between hosts pieces use all streams both ways, as some networks limit
// each.
constexpr int stream_of_long(int streams, bool higher) {
  return streams < 2 ? 0 : higher ? 2 % streams : 1;
}

// A message that could not be sent at once.
struct TcpOutgoing {
  Send* send = nullptr;  // null: aborted, `copy` holds the bytes
  Header header;
  const std::byte* data = nullptr;
  std::size_t cut = 0;      // bytes handed to streams
  std::size_t written = 0;  // bytes on the wire
  std::uint32_t message = 0;
  int stream = 0;  // where it begins
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
  // Null `outgoing`: the frame has no payload.
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

  bool empty() const { return pending_ == 0; }
  int opening_stream() const { return opening_stream_; }
  // The stream to which the caller may write this message itself, whole; -1: it is to be pushed.
  int stream_at_once(const Header& header);
  // Whether any send is waited for, besides copies of aborted messages.
  bool awaited() const { return waited_ != 0; }

  void push(Send& send);
  // A message of which `written` bytes, counting its opening, are already on the stream that
  // stream_at_once() has named. Precondition: empty().
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

  bool is_long(const Header& header) const { return header.length >= cutting_.cut_bytes; }
  bool cuts() const { return cutting_.long_stream < 0; }
  int plan_stream(const Header& header);
  bool load(int stream);
  void load_move(TcpWriter& writer, int to);
  void load_message(TcpWriter& writer);
  void load_piece(TcpWriter& writer);
  TcpOutgoing& take(Send& send);
  Send* end(TcpOutgoing& outgoing);
  void detach(TcpOutgoing& outgoing, const Error& error, bool needed);

  TcpOutgoingPool& pool_;
  Scheduler& scheduler_;
  TcpCutting cutting_;
  std::vector<TcpWriter> writers_;
  std::vector<TcpOutgoing*> begun_;   // bytes are on the wire or in a writer
  std::vector<TcpOutgoing*> shared_;  // announced, not yet wholly given to streams
  TcpOutgoing* queue_ = nullptr;
  TcpOutgoing* queue_tail_ = nullptr;
  int opening_stream_ = 0;      // messages begin there
  int planned_stream_ = 0;      // where the latest message is to begin
  unsigned short_in_turn_ = 0;  // messages since the latest long one
  std::uint32_t messages_ = 0;
  std::size_t moves_ = 0;    // frames that are to be written
  std::size_t pending_ = 0;  // moves and messages
  std::size_t waited_ = 0;
};

// The opening of a message that is sent in one frame.
MessageOpening whole_opening(const Header& header);

}  // namespace pith
