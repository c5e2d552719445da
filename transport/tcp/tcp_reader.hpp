// The receiving half of a TCP stream: says where to read the next bytes, and makes messages of
// them. Knows no socket, so that tests and fuzzers can feed it.
//
// Small messages are delivered from the read buffer, so several of them cost one system call; the
// rest of a larger one is read straight to where the Mailbox wants it.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/mailbox.hpp"
#include "transport/tcp/tcp_frames.hpp"

namespace pith {

// The cut messages that are arriving from one peer, on all its streams.
class TcpInbox {
 public:
  // Messages may begin on streams below `opening_streams`.
  TcpInbox(Mailbox& mailbox, int peer, int opening_streams = 1)
      : mailbox_(mailbox), peer_(peer), opening_streams_(opening_streams) {
    cut_.reserve(64);
  }

  int peer() const { return peer_; }
  Mailbox& mailbox() { return mailbox_; }
  // Pieces are in flight, so streams other than the first must be read.
  bool expects_pieces() const { return !cut_.empty(); }

  // Where the next message begins.
  int opening_stream() const { return opening_stream_; }
  bool may_open(int stream) const { return stream < opening_streams_; }
  void open_on(int stream) { opening_stream_ = stream; }

  struct Cut {
    std::uint32_t message;
    Mailbox::Incoming* incoming;
    // Bytes of pieces whose reading has begun. Never more than the message's length, so that no
    // piece is still being read once all bytes have arrived.
    std::size_t promised;
  };
  // Null where the announcement is out of order.
  Cut* announce(std::uint32_t message, const Header& header);
  Cut* find(std::uint32_t message);
  // Whether the message may still be announced.
  bool ahead(std::uint32_t message) const {
    return static_cast<std::int32_t>(message - next_) >= 0;
  }
  void finish_cut(Mailbox::Incoming& incoming);

  // A whole message that arrives in several reads.
  Mailbox::Incoming& begin_whole(const Header& header);
  void finish_whole();

  // The rest will never come: receives that wait for it end with `error`.
  void abandon(const Error& error);
  bool empty() const { return cut_.empty() && !whole_; }

 private:
  static constexpr std::size_t cut_max = 4096;

  Mailbox& mailbox_;
  int peer_;
  int opening_streams_;
  int opening_stream_ = 0;
  std::uint32_t next_ = 0;
  std::vector<Cut> cut_;
  Mailbox::Incoming* whole_ = nullptr;
};

class TcpReader {
 public:
  TcpReader(TcpInbox& inbox, int stream, std::size_t buffer_bytes);

  // Buffers to read into, in this order. Empty while the reader waits for another stream.
  std::span<const iovec> targets();
  // `bytes` have been read there. Returns what is wrong with them, or null.
  const char* arrived(std::size_t bytes);
  // Continues with what is buffered, after another stream has brought an announcement or a move.
  const char* resume();

  // It holds what only resume() parses.
  bool stalled() const { return stalled_; }
  bool said_goodbye() const { return goodbye_; }

 private:
  enum class Step : std::uint8_t { again, need_more, wait };  // wait: for another stream

  const char* parse();
  const char* take_frame(const Frame& frame, Step& step);
  const char* take_opening(Step& step);
  const char* take_piece(const Frame& frame, Step& step);
  const char* take_move(const Frame& frame);
  void start_body(Mailbox::Incoming& incoming, std::size_t offset, std::size_t bytes, bool cut);
  void body_moved(std::size_t bytes);

  // Shorter messages wait in the buffer for their rest: a copy is cheaper than another read.
  static constexpr std::size_t wait_bytes = 4096;
  // Room behind a body, to read the frames after it in the same call.
  static constexpr std::size_t tail_bytes = 4096;

  TcpInbox& inbox_;
  int stream_;
  std::size_t capacity_;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  Mailbox::Incoming* body_ = nullptr;
  std::size_t body_offset_ = 0;
  std::size_t body_left_ = 0;
  bool body_cut_ = false;
  bool stalled_ = false;
  bool goodbye_ = false;
  std::array<iovec, 2> targets_{};
};

}  // namespace pith
