// TcpTransport's state for one peer; private to its sources.
#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "transport/tcp/tcp.hpp"
#include "transport/tcp/tcp_reconnect.hpp"
#include "transport/tcp/tcp_resumption.hpp"
#include "transport/tcp/tcp_seal.hpp"
#include "transport/tcp/tcp_silence.hpp"

namespace pith {

inline std::size_t bytes_of(std::span<const iovec> parts) {
  std::size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  return bytes;
}

struct TcpTransport::Stream {
  Stream(Peer& owner, int which, std::size_t buffer_bytes);
  // Changes what epoll watches for.
  void watch(int epoll, std::uint32_t events);
  // The connection's end is not told any more either.
  void unwatch(int epoll) const { ::epoll_ctl(epoll, EPOLL_CTL_DEL, socket.get(), nullptr); }
  // As sendmsg() and readv() without blocking. EBADMSG: see fault().
  ssize_t write(std::span<const iovec> parts);
  ssize_t read(std::span<const iovec> parts);
  // Writes what must go before anything new; false, with errno: not all of it could.
  bool catch_up();
  // Uses the socket. Null keys: it is not encrypted.
  Error begin(const ConnectionKeys* keys, int epoll);
  // The connection has failed with this errno, or has ended (0). True: that is not the end, as the
  // stream may go on over another one, or read() has something left.
  bool suspend(TcpMesh* mesh, int cause);
  // There will be no other connection.
  void give_up();
  // Goes on there; also where the peer alone knows that the connection has broken.
  Error resume(Descriptor connection, const ConnectionKeys* keys, int epoll);
  // Whether read() returns something without the socket becoming readable.
  bool holds() const {
    if (socket && seal && seal->holds()) return true;
    return resumption && (resumption->holds() || (!socket && is_over()));
  }
  // Whether read() may return something, now or later.
  bool brings() const { return socket || holds(); }
  bool is_behind() const { return resumption && resumption->is_behind(); }
  bool awaits_greeting() const { return resumption && resumption->awaits_greeting(); }
  // Bytes that catch_up() has moved, ever.
  std::uint64_t caught_up() const { return resumption ? resumption->moved() : 0; }
  // It has lost its connection, and waits for another.
  bool suspended() const { return resumption && resumption->suspended(); }
  // It needs no other connection. Precondition: it outlives connections.
  bool is_over() const { return resumption->given_up() || reader.said_goodbye(); }
  // Whether messages may be written. Not while what went before must be sent again.
  bool takes_more() const { return socket && !is_behind(); }
  // Whether it has something to write where no message is.
  bool has_to_send() const { return is_behind() && !resumption->to_send().empty(); }
  // Null, or what is wrong with what has come.
  const char* fault() const {
    if (seal && seal->fault()) return seal->fault();
    return resumption ? resumption->fault() : nullptr;
  }
  // Ends the direction to the peer in order.
  void say_goodbye(std::uint64_t deadline_ns);

  Peer& peer;
  int number;
  Descriptor socket;
  std::unique_ptr<TcpSeal> seal;              // null: not encrypted
  std::unique_ptr<TcpResumption> resumption;  // null: a break of the connection ends it
  TcpReader reader;
  std::uint32_t watched = 0;  // epoll events
  bool hung_up = false;       // as epoll says of the connection

 private:
  ssize_t put(std::span<const iovec> parts);
  ssize_t get(std::span<const iovec> parts);
  ssize_t get_bytes(std::span<std::byte> into);
  ssize_t read_greeting();
  ssize_t end_of_connections() const;
  bool leave_connection();
  std::size_t unacknowledged() const;
  std::size_t uncounted() const;
};

struct TcpTransport::Peer {
  Peer(int peer_rank, const LinkKind& link, TcpTransport& transport)
      : rank(peer_rank),
        resumes(link.outlives_connections),
        inbox(transport.mailbox_, peer_rank, link.on_this_host ? link.streams : 1),
        outbox(transport.pool_, transport.scheduler_,
               {transport.options_.cut_bytes, transport.options_.piece_bytes,
                link.on_this_host ? stream_of_long(link.streams, transport.rank_ > peer_rank) : -1},
               link.streams) {
    for (int s = 0; s < link.streams; ++s) {
      // What is long is read to its destination; only frames, and the few short messages that come
      // between long ones, pass through the buffers of streams 1...
      const std::size_t buffer_bytes = s == 0 ? transport.options_.read_bytes : 0;
      streams.push_back(std::make_unique<Stream>(*this, s, buffer_bytes));
      if (resumes) streams.back()->resumption = std::make_unique<TcpResumption>();
    }
  }

  Error adopt(TcpMesh::Opened opened, int epoll) {
    open = true;
    for (std::size_t s = 0; s < opened.streams.size(); ++s) {
      streams[s]->socket = std::move(opened.streams[s]);
      const ConnectionKeys* const keys = opened.keys.empty() ? nullptr : &opened.keys[s];
      if (Error failed = streams[s]->begin(keys, epoll)) return failed;
    }
    return {};
  }
  // No connection is left, and none is hoped for.
  bool all_ended() const {
    return std::ranges::none_of(streams,
                                [](const auto& one) { return one->brings() || one->suspended(); });
  }
  // An end of a connection, for good.
  void cut_short_by(int why) {
    if (!std::exchange(cut_short, true)) cause = why;
    broken = true;
    ending_ns = monotonic_ns();
  }
  // Nobody listens there any more. What has come early is still read, and then the end.
  void stop_resuming() {
    for (auto& stream : streams) {
      if (stream->suspended()) stream->give_up();
    }
  }
  // Where its messages begin.
  Stream& opening() { return *streams[static_cast<std::size_t>(inbox.opening_stream())]; }
  bool any_behind() const {
    return std::ranges::any_of(streams,
                               [](const auto& one) { return one->socket && one->is_behind(); });
  }
  bool any_suspended() const {
    return std::ranges::any_of(streams, [](const auto& one) { return one->suspended(); });
  }
  // Whether a stream without a connection has something to be read, or its end.
  bool holds_early() const {
    const auto does = [](const auto& one) { return !one->socket && one->holds(); };
    return lacks_connections && std::ranges::any_of(streams, does);
  }
  // Whether the peer may lack something, and may be about to say so over another connection.
  bool is_unacknowledged() const {
    const auto is = [](const auto& one) {
      return one->socket && !one->reader.said_goodbye() &&
             unacknowledged_bytes(one->socket.get()) != 0;
    };
    return resumes && std::ranges::any_of(streams, is);
  }

  int rank;
  bool resumes;  // streams outlive their connections
  TcpInbox inbox;
  TcpOutbox outbox;
  std::vector<std::unique_ptr<Stream>> streams;
  Error error;                     // set once the peer is lost or gone
  bool live = true;                // false: lost or gone
  bool open = false;               // its streams have been opened; until then sends are queued
  bool broken = false;             // an end is near: read up to it even if no message is wanted
  bool cut_short = false;          // a connection has ended without a goodbye, for good
  bool catching_up = false;        // of a stream, nothing new may be written yet
  bool lacks_connections = false;  // a stream that outlives connections may have none
  int cause = end_of_stream;       // of the first such end
  std::size_t turn = 0;            // the stream that is written to first
  std::uint64_t ending_ns = 0;     // since that end, or since other streams brought something
  std::uint64_t heard_bytes = 0;   // received from it
  TcpSilence silence;
  bool doubtful = false;  // by the last check it may be cut off
  bool cut_off = false;   // lost because it did not answer
};

inline TcpTransport::Stream::Stream(Peer& owner, int which, std::size_t buffer_bytes)
    : peer(owner), number(which), reader(owner.inbox, which, buffer_bytes) {}

inline ssize_t TcpTransport::Stream::write(std::span<const iovec> parts) {
  if (!resumption) return put(parts);
  if (!catch_up()) return -1;
  const std::size_t ahead = std::min(resumption->ahead(), bytes_of(parts));
  const ssize_t written = ahead != 0 ? static_cast<ssize_t>(ahead) : put(parts);
  if (written > 0) {
    resumption->wrote(parts, static_cast<std::size_t>(written),
                      [this] { return unacknowledged(); });
  }
  return written;
}

inline ssize_t TcpTransport::Stream::put(std::span<const iovec> parts) {
  if (seal) return seal->write(socket.get(), parts);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

inline ssize_t TcpTransport::Stream::get(std::span<const iovec> parts) {
  const int fd = socket.get();
  if (seal) return seal->read(fd, parts);
  if (parts.size() == 1) return ::recv(fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
  return ::readv(fd, parts.data(), static_cast<int>(parts.size()));
}

// As errors tell it: errno, or 0.
const char* how_it_ended(int cause);
// The error of a rank that has sent something wrong.
Error lost_by_fault(int rank, const char* fault);

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
