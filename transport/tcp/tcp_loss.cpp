// How TcpTransport loses a peer: its connections have ended, or it acknowledges nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "transport/tcp/tcp.hpp"
#include "transport/tcp/tcp_peer.hpp"
#include "transport/tcp/tcp_silence.hpp"

namespace pith {
namespace {

// Links are checked this often in a heartbeat. After a quarter of one, when the kernel begins to
// probe idle connections, a peer that owes an answer is doubtful.
constexpr std::uint64_t looks_per_heartbeat = 16;
constexpr std::uint64_t quarters = 4;
// The connections of a process end together. If some stay open without bringing anything, the
// process has not ended, and the peer is lost after this time.
constexpr std::uint64_t ending_ns = 500'000'000;

std::uint64_t heartbeat_ns(const TcpOptions& options) {
  return static_cast<std::uint64_t>(options.heartbeat_s * 1e9);
}

}  // namespace

Error lost_by_fault(int rank, const char* fault) {
  return peer_lost(rank, fmt::format("it sent {}", fault));
}

const char* how_it_ended(int cause) {
  return cause == 0 ? "it has closed the connection" : std::strerror(cause);
}

// What the peer has sent on its other connections still counts.
void TcpTransport::stream_ended(Peer& peer, Stream& stream, int cause) {
  const bool in_order = stream.reader.said_goodbye();
  if (!in_order && is_silence(cause)) return lose(peer, cause);
  if (stream.suspend(mesh_.get(), cause)) return;
  stream.socket.reset();
  stream.resumption.reset();
  if (!in_order) peer.cut_short_by(cause);
  if (peer.all_ended()) depart(peer);
}

// What has come is read in any case, so that a peer's last words count.
void TcpTransport::write_failed(Stream& stream, int cause) {
  Peer& peer = stream.peer;
  if (stream.fault()) {
    return lose(peer, lost_by_fault(peer.rank, stream.fault()));
  }
  // Before its greeting a connection brings nothing else.
  if (stream.awaits_greeting()) return stream_ended(peer, stream, cause);
  if (stream.suspend(mesh_.get(), cause)) return;
  if (peer.outbox.awaited()) return lose(peer, cause);
  // A peer that has left in order cannot take the rest of aborted messages, and need not.
  peer.outbox.quiesce(nullptr, Error(), false);
  for (auto& other : peer.streams) {
    if (other->seal) other->seal->end_writing();
  }
}

// All that it has sent has been read. Sends to it and receives of incomplete messages fail.
void TcpTransport::depart(Peer& peer) {
  peer.live = false;
  peer.error =
      peer.cut_short ? peer_lost(peer.rank, how_it_ended(peer.cause)) : peer_left(peer.rank);
  peer.outbox.quiesce(nullptr, peer.error, false);
  peer.inbox.abandon(peer.error);
  departed_.push_back(&peer);
}

void TcpTransport::look_at_links(std::uint64_t now_ns) {
  if (now_ns < next_look_ns_) return;
  // No check for a while, or this machine stood still: what was owed before says nothing of the
  // time since.
  const bool anew = now_ns - next_look_ns_ > heartbeat_ns(options_) / quarters;
  next_look_ns_ = now_ns + heartbeat_ns(options_) / looks_per_heartbeat;
  for (Peer* peer : peers_) {
    if (!peer->live) continue;
    if (anew) peer->silence = TcpSilence();
    look_at(*peer, now_ns);
    // Who waits for a message should hear if its sender is gone, so it connects, too.
    if (peer->live && !peer->open && mailbox_.awaited(peer->rank)) mesh_->want(peer->rank);
  }
}

// One connection that answers is enough: a kernel whose memory for a stopped process is full may
// drop data silently, and still answers on idle connections.
void TcpTransport::look_at(Peer& peer, std::uint64_t now_ns) {
  TcpAnswers all;
  all.last_ns = now_ns;
  for (const auto& stream : peer.streams) {
    if (!stream->socket) continue;
    const TcpAnswers one = answers_of(stream->socket.get());
    all.owed |= one.owed;
    all.last_ns = std::min(all.last_ns, one.last_ns);
    if (!stream->resumption) continue;
    stream->resumption->rest([&] { return unacknowledged_bytes(stream->socket.get()); });
  }
  peer.doubtful =
      peer.any_suspended() || (all.owed && all.last_ns >= heartbeat_ns(options_) / quarters);
  if (peer.silence.look(all, now_ns) >= heartbeat_ns(options_)) return lose(peer, ETIMEDOUT);
  if (peer.cut_short && now_ns > peer.ending_ns + ending_ns) lose(peer, peer.cause);
}

LinkState TcpTransport::link_to(int peer) const {
  const Peer* found = find(peer);
  if (found && found->cut_off) return LinkState::cut_off;
  return found && found->live && found->doubtful ? LinkState::doubtful : LinkState::up;
}

void TcpTransport::lose(Peer& peer, int cause) {
  if (!is_silence(cause)) return lose(peer, peer_lost(peer.rank, how_it_ended(cause)));
  if (peer.error) return;
  peer.cut_off = true;
  const auto [one, other] = std::minmax(rank_, peer.rank);
  lose(peer, Error(Code::remote,
                   fmt::format("the link between rank {} and rank {} is dead: nothing has been "
                               "acknowledged for {} s",
                               one, other, options_.heartbeat_s),
                   peer.rank));
}

void TcpTransport::lose(Peer& peer, const Error& error) {
  if (peer.error) return;
  peer.error = error;
  peer.live = false;
  for (auto& stream : peer.streams) stream->socket.reset();
  peer.outbox.quiesce(nullptr, peer.error, false);
  peer.inbox.abandon(peer.error);
  unreported_.push_back(&peer);
}

void TcpTransport::check_departed() {
  std::erase_if(departed_, [this](Peer* peer) {
    const bool missed = mailbox_.awaited(peer->rank);
    if (missed) unreported_.push_back(peer);
    return missed;
  });
}

// Last in progress(): the owner may call back into this transport.
void TcpTransport::report_lost() {
  while (!unreported_.empty()) {
    Peer* peer = unreported_.back();
    unreported_.pop_back();
    if (on_peer_lost) on_peer_lost(peer->rank, peer->error);
  }
}

}  // namespace pith
