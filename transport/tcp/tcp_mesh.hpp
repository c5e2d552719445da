// The authenticated streams of TcpTransport: those of the start-up, and those that are opened when
// the first message wants them.
//
// The higher rank of a pair connects, the lower one accepts. A lower rank that wants streams
// connects too, with the number behind the last stream's, which asks the higher rank to open them.
// That connection stays until they are open; its end before that means that the request is lost.
//
// Streams that outlive their connections are opened again alike, one by one; a lower rank asks for
// stream s by the s-th number behind the one that asks for all.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "transport/accept_limiter.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"

namespace pith {

struct TcpMeshPlan {
  Secret secret{};
  int rank = 0;
  int ranks = 1;
  double heartbeat_s = 10;             // see patience_s()
  std::vector<std::string> addresses;  // by rank, see tcp_address.hpp
  std::size_t rails = 1;               // that this rank has
  std::vector<int> streams;            // by rank, the same at both ends; 0: it is no peer
  std::vector<std::uint8_t> resumes;   // by rank, the same at both ends: see reopen()
  bool encrypt = false;                // the same at both ends

  int streams_to(int peer) const { return streams[static_cast<std::size_t>(peer)]; }
  bool resumes_with(int peer) const {
    return !resumes.empty() && resumes[static_cast<std::size_t>(peer)] != 0;
  }
  // The number by which a lower rank asks for another connection of this stream.
  int request_of(int peer, int stream) const { return streams_to(peer) + 1 + stream; }
};

// Connections that do not prove the secret, and slow ones, are dropped without delaying others.
class TcpMesh {
 public:
  struct Opened {
    int peer;
    std::vector<Descriptor> streams;   // their idle times are probed, see keep_alive()
    std::vector<ConnectionKeys> keys;  // of the streams; empty: they are not encrypted
  };
  struct Reopened {
    int peer;
    int stream;
    Descriptor socket;
    ConnectionKeys keys;  // if it is encrypted
  };
  struct Failed {
    enum class How : std::uint8_t {
      gone,         // it listens no more
      unreachable,  // nothing has answered, so it may live
      refused,      // for the reason in `error`
    };
    int peer;
    How how;
    Error error;
  };

  struct News {
    std::vector<Opened> opened;
    std::vector<Reopened> reopened;
    std::vector<Failed> failed;
  };

  // The listener may be empty if nobody is going to connect to this rank.
  TcpMesh(TcpMeshPlan plan, Descriptor listener);
  ~TcpMesh();

  // Opens the streams to every peer p with now[p], which must do the same. Blocks until all are
  // open, and tries again until patience is over; later failures are reported by take_news().
  Error connect(std::span<const std::uint8_t> now, const Patience& patience);
  // Begins to open the streams to a peer, unless they are open, under way, or have failed.
  void want(int peer);
  bool all_open() const { return closed_links_ == 0; }
  // Begins to open another connection for a stream of an open link, unless that is under way; false
  // if it has failed. The other end may have done so unasked.
  bool reopen(int peer, int stream);

  // Does what can be done without waiting; true if a peer has been opened or has failed.
  bool step();
  // Readable when step() has something to do, except for what it tries again after a while.
  int descriptor() const { return epoll_.get(); }
  // Whether step() must be called although the descriptor is not readable.
  bool is_due() const {
    const bool deaf = listener_ && listening_ == 0;
    return (deaf || !connections_.empty()) && monotonic_ns() >= next_look_ns_;
  }
  News take_news() { return std::exchange(news_, {}); }

 private:
  struct Connection;
  struct Link {
    int ready = 0;  // streams that are authenticated
    bool wanted = false;
    bool open = false;
    bool failed = false;
    std::uint64_t reopened_ns = 0;  // when a stream was last opened again
  };

  Error prepare();
  Error overdue(std::span<const std::uint8_t> now) const;
  void begin_due(std::uint64_t now, bool anew);
  void begin(Connection& connection, std::uint64_t now);
  void drive(Connection& connection);
  void closed_early(Connection& connection);
  void check_connected(Connection& connection);
  void shake_hands(Connection& connection);
  void accept_connections();
  void drop_slow(std::uint64_t now, bool anew);
  void listen_while_room(std::uint64_t now);
  bool may_keep(const Greeting& greeting) const;
  void keep(Connection& connection);
  void become_ready(Connection& connection);
  void replace(Connection& connection);
  void finish(int peer);
  void try_again(Connection& connection, const Error& why);
  void end(Connection& connection);
  void fail(int peer, Failed::How how, const Error& why);
  Link& link(int peer) { return links_[static_cast<std::size_t>(peer)]; }

  const TcpMeshPlan plan_;
  Descriptor listener_;
  Descriptor epoll_;
  Descriptor spare_;  // given up to accept one more connection when no descriptors are left
  std::uint32_t listening_ = 0;  // epoll events of the listener
  std::vector<Link> links_;      // by rank
  int closed_links_ = 0;
  std::list<Connection> connections_;  // of links that are not open; the oldest first
  News news_;
  AcceptLimiter limiter_;
  std::size_t unauthenticated_ = 0;  // accepted connections in their handshake
  Error accept_error_;               // the last one
  std::uint64_t next_look_ns_ = 0;   // at all connections
  std::uint64_t looked_ns_ = 0;      // the last time
  bool starting_ = false;            // failed attempts are repeated until patience is over
};

}  // namespace pith
