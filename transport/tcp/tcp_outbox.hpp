// The sending half of a TCP connection to one peer: which bytes go next on which stream.
//
// Messages wait in one queue. Stream 0 takes them in order; those of `cut_bytes` and more are only
// announced there and then shared out in pieces to whichever stream has room. Knows no socket.
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

// A message that could not leave at once.
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

// A frame on its way into one stream.
class TcpWriter {
 public:
  bool idle() const { return size_ == 0; }
  std::span<const iovec> rest();
  // `bytes` of rest() are gone; true at the end of the frame.
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
  std::size_t size_ = 0;  // of the frame, with what precedes the payload
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
  // Sends of somebody who waits, not copies of what was aborted.
  bool awaited() const { return waited_ != 0; }

  void push(Send& send);
  // A message of which `written` bytes, with its opening, are already on stream 0. Only while
  // empty.
  void push_rest(Send& send, const MessageOpening& opening, std::size_t written);

  // Bytes for a stream; none where it has nothing to do.
  std::span<const iovec> next(int stream);
  // Returns the send that has ended with these bytes, null otherwise.
  Send* wrote(int stream, std::size_t bytes);

  // Sends of the communicator, or all for null, end with the error. What has begun goes on from a
  // copy, unless the connection is gone.
  void quiesce(const CommState* comm, const Error& error, bool connected);

  // Sends that somebody waits for, in order.
  void for_each_sending(const std::function<void(const Send&)>& see) const;

 private:
  static constexpr int sharing_max = 8;  // bounds what a peer must keep track of

  bool load(int stream);
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
  std::vector<TcpOutgoing*> shared_;  // announced, not yet wholly handed to streams
  TcpOutgoing* queue_ = nullptr;
  TcpOutgoing* queue_tail_ = nullptr;
  std::uint32_t messages_ = 0;
  std::size_t pending_ = 0;
  std::size_t waited_ = 0;
};

// What precedes the payload of a message that is sent in one frame.
MessageOpening whole_opening(const Header& header);

}  // namespace pith
