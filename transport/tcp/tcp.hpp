// Ranks connected by TCP: several non-blocking streams a pair, polled by the thread that drives the
// engine. A small message is one system call at each end; a large one is cut over all streams, or
// on one host goes over a stream of its direction, and is read straight into the receiver's buffer.
//
// Where descriptors do not suffice for all pairs, most connect when a message is sent or has been
// waited for; a send then waits until its peer is in a call, too.
//
// A peer whose connections have ended is gone, but what it had sent is delivered; it is lost once a
// receive waits for more, or something is sent to it. A peer that acknowledges nothing for
// `heartbeat_s` is lost at once: see on_peer_lost.
//
// Between hosts a connection may also break while both processes live (a router that has been
// restarted, an address translation that was forgotten). Then the stream goes on over another one
// (tcp_resumption.hpp). A peer that listens no more is gone, as above; one that answers no attempt
// for three times `heartbeat_s` is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "transport/handshake.hpp"
#include "transport/peer_transport.hpp"
#include "transport/socket.hpp"
#include "transport/tcp/tcp_mesh.hpp"
#include "transport/tcp/tcp_outbox.hpp"
#include "transport/tcp/tcp_reader.hpp"
#include "transport/tcp/tcp_reconnect.hpp"

namespace pith {

struct TcpOptions {
  std::string host = "127.0.0.1";  // reachable for peers, so not 0.0.0.0
  std::vector<std::string> rails;  // further addresses of this host, to which streams go in turn
  PairStreams streams{4, 4, false};
  // Messages of this size go over all streams, in pieces; between ranks of one host whole, over a
  // stream of their direction.
  std::size_t cut_bytes = std::size_t{256} << 10;
  std::size_t piece_bytes = std::size_t{256} << 10;
  std::size_t read_bytes = std::size_t{64} << 10;
  double heartbeat_s = 10;
  Reconnect reconnect = Reconnect::never;  // the same on all ranks
  PortRange ports;
  bool encrypt = false;  // the same on all ranks
};

class TcpTransport final : public PeerTransport {
 public:
  // Peers are numbered by rank.
  TcpTransport(Scheduler& scheduler, Mailbox& mailbox, int rank, int ranks, const Secret& secret,
               const TcpOptions& options = {});
  ~TcpTransport() override;

  Expected<std::string> listen() override;
  // Replaces the numbers in the options.
  void use_streams(const PairStreams& streams) override;
  Error connect(std::span<const std::string> addresses, std::span<const std::uint8_t> use,
                const Patience& patience) override;
  void close(std::uint64_t deadline_ns) override;

  // Checks whether the peers acknowledge what is in flight, which the kernel does not judge.
  void look_at_links(std::uint64_t now_ns) override;
  LinkState link_to(int peer) const override;
  double round_trip_s() const override;

  std::string_view name() const override { return "tcp"; }
  bool start(Send& send) override;
  std::size_t slot_bytes() const override { return std::size_t{64} << 10; }
  MemoryHandle expose(int, Bytes) override { return {}; }
  std::byte* map(int, MemoryHandle) override { return nullptr; }
  bool progress() override;
  bool busy() const override;
  int descriptor() const override { return epoll_.get(); }
  bool arm() override;
  void disarm() override {}
  void quiesce(const CommState& comm, const Error& error) override;
  void expect(int peer) override;
  std::uint64_t heard_from(int peer) const override;
  void for_each_sending(const std::function<void(const Send&)>& see) const override;

 private:
  struct Stream;
  struct Peer;
  struct LinkKind {
    int streams;
    bool outlives_connections;
    bool on_this_host;
  };
  static constexpr int end_of_stream = 0;  // in place of an errno

  Error watch_mesh();
  bool take_links();
  void end_mesh();
  bool start_at_once(Stream& stream, Send& send);
  bool write(Peer& peer);
  bool write_stream(Peer& peer, Stream& stream, std::size_t most, std::size_t& gone);
  bool read(Peer& peer);
  bool read_stream(Peer& peer, Stream& stream);
  bool read_few();
  bool read_ready();
  int poll_events();
  void write_failed(Stream& stream, int cause);
  void stream_ended(Peer& peer, Stream& stream, int cause);
  void depart(Peer& peer);
  void look_at(Peer& peer, std::uint64_t now_ns);
  void lose(Peer& peer, int cause);
  void lose(Peer& peer, const Error& error);
  void check_departed();
  void report_lost();
  Peer* find(int peer) const { return by_rank_[static_cast<std::size_t>(peer)].get(); }

  Scheduler& scheduler_;
  Mailbox& mailbox_;
  int rank_;
  int ranks_;
  Secret secret_;
  TcpOptions options_;
  Descriptor listener_;            // until connect()
  std::unique_ptr<TcpMesh> mesh_;  // null: all peers are connected, or none is yet
  Descriptor epoll_;
  TcpOutgoingPool pool_;
  std::vector<std::unique_ptr<Peer>> by_rank_;
  std::vector<Peer*> peers_;     // all, also those that are not connected yet
  std::vector<Peer*> departed_;  // gone; lost once a receive waits for them
  std::vector<Peer*> ready_;     // by the last poll_events()
  std::vector<Peer*> unreported_;
  Send* starting_ = nullptr;
  unsigned turn_ = 0;
  std::uint64_t next_look_ns_ = 0;
  bool read_all_ = false;    // in the next turn: epoll has had events
  bool mesh_ready_ = false;  // by the last poll_events()
};

}  // namespace pith
