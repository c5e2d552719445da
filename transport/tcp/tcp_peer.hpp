// TcpTransport's state for one peer; private to its sources.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <memory>
#include <span>
#include <vector>

#include "transport/tcp/tcp.hpp"
#include "transport/tcp/tcp_seal.hpp"
#include "transport/tcp/tcp_silence.hpp"

namespace pith {

struct TcpTransport::Stream {
  Stream(Peer& owner, int which, std::size_t buffer_bytes);
  // Changes what epoll watches for.
  void watch(int epoll, std::uint32_t events);
  // As sendmsg() and readv() without blocking.
  ssize_t write(std::span<const iovec> parts);
  ssize_t read(std::span<const iovec> parts);
  // Whether read() returns something without the socket becoming readable.
  bool holds() const { return seal && seal->holds(); }
  // Ends the direction to the peer in order.
  void say_goodbye(std::uint64_t deadline_ns);

  Peer& peer;
  int number;
  Descriptor socket;
  std::unique_ptr<TcpSeal> seal;  // null: not encrypted
  TcpReader reader;
  std::uint32_t watched = 0;  // epoll events
};

struct TcpTransport::Peer {
  Peer(int peer_rank, int streams_to_it, TcpTransport& transport)
      : rank(peer_rank),
        inbox(transport.mailbox_, peer_rank),
        outbox(transport.pool_, transport.scheduler_,
               {transport.options_.cut_bytes, transport.options_.piece_bytes}, streams_to_it) {
    for (int s = 0; s < streams_to_it; ++s) {
      // Pieces are read to their destination; only frames pass through the buffers of streams 1...
      const std::size_t buffer_bytes = s == 0 ? transport.options_.read_bytes : 0;
      streams.push_back(std::make_unique<Stream>(*this, s, buffer_bytes));
    }
  }

  int rank;
  TcpInbox inbox;
  TcpOutbox outbox;
  std::vector<std::unique_ptr<Stream>> streams;
  Error error;                    // set once the peer is lost or gone
  bool live = true;               // false: lost or gone
  bool open = false;              // its streams have been opened; until then sends are queued
  bool broken = false;            // an end is near: read up to it even if no message is wanted
  bool cut_short = false;         // a connection has ended without a goodbye
  int cause = end_of_stream;      // of the first such end
  std::uint64_t ending_ns = 0;    // since that end, or since other streams brought something
  std::uint64_t heard_bytes = 0;  // received from it
  TcpSilence silence;
  bool doubtful = false;  // by the last check it may be cut off
  bool cut_off = false;   // lost because it did not answer
};

inline TcpTransport::Stream::Stream(Peer& owner, int which, std::size_t buffer_bytes)
    : peer(owner), number(which), reader(owner.inbox, which, buffer_bytes) {}

inline ssize_t TcpTransport::Stream::write(std::span<const iovec> parts) {
  if (seal) return seal->write(socket.get(), parts);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

inline ssize_t TcpTransport::Stream::read(std::span<const iovec> parts) {
  const int fd = socket.get();
  if (seal) return seal->read(fd, parts);
  if (parts.size() == 1) return ::recv(fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
  return ::readv(fd, parts.data(), static_cast<int>(parts.size()));
}

inline void TcpTransport::Stream::say_goodbye(std::uint64_t deadline_ns) {
  Frame goodbye;
  goodbye.type = FrameType::goodbye;
  const iovec whole{&goodbye, sizeof goodbye};
  const auto plain = std::as_bytes(std::span(&goodbye, 1));
  static_cast<void>(send_all(socket.get(), seal ? seal->last({&whole, 1}) : plain, deadline_ns));
}

inline void TcpTransport::Stream::watch(int epoll, std::uint32_t events) {
  if (watched == events) return;
  epoll_event event{};
  event.events = watched = events;
  event.data.ptr = this;
  ::epoll_ctl(epoll, EPOLL_CTL_MOD, socket.get(), &event);
}

}  // namespace pith
