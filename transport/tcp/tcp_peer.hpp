// TcpTransport's state for one peer; private to its sources.
#pragma once

#include <sys/epoll.h>

#include <memory>
#include <vector>

#include "transport/tcp/tcp.hpp"
#include "transport/tcp/tcp_silence.hpp"

namespace pith {

struct TcpTransport::Stream {
  Stream(Peer& owner, int which, std::size_t buffer_bytes);
  // Changes what epoll watches for.
  void watch(int epoll, std::uint32_t events);

  Peer& peer;
  int number;
  Descriptor socket;
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

inline void TcpTransport::Stream::watch(int epoll, std::uint32_t events) {
  if (watched == events) return;
  epoll_event event{};
  event.events = watched = events;
  event.data.ptr = this;
  ::epoll_ctl(epoll, EPOLL_CTL_MOD, socket.get(), &event);
}

}  // namespace pith
