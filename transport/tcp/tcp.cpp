#include "transport/tcp/tcp.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "core/clock.hpp"
#include "transport/socket.hpp"
#include "transport/tcp/tcp_peer.hpp"

namespace pith {
namespace {

// Up to this many peers it is cheaper to try to read from each than to ask epoll.
constexpr std::size_t few_peers = 4;
// Of few peers, those without a waiting receive are read every 8th turn, unless none has one.
constexpr unsigned others_mask = 7;
constexpr unsigned mesh_mask = 255;
// In a turn, to a peer and from a stream, so that reading, writing and peers alternate. What has
// come is taken before more is written, while it is in the cache.
constexpr std::size_t turn_bytes = std::size_t{256} << 10;

}  // namespace

TcpTransport::TcpTransport(Scheduler& scheduler, Mailbox& mailbox, int rank, int ranks,
                           const Secret& secret, const TcpOptions& options)
    : PeerTransport(Looks::into_kernel),
      scheduler_(scheduler),
      mailbox_(mailbox),
      rank_(rank),
      ranks_(ranks),
      secret_(secret),
      options_(options),
      by_rank_(static_cast<std::size_t>(ranks)) {}

TcpTransport::~TcpTransport() = default;

bool TcpTransport::start(Send& send) {
  Peer* peer = by_rank_[static_cast<std::size_t>(send.peer)].get();
  if (!peer) {
    send.error = Error(Code::internal, fmt::format("no connection to rank {}", send.peer));
    return true;
  }
  // Its first stream has ended, so it takes no more, whatever its other streams still bring.
  const Stream& first = *peer->streams[0];
  const bool ended = peer->open && !first.brings() && !first.suspended();
  if (peer->live && ended) lose(*peer, peer->cause);
  if (!peer->live) {
    send.error = peer->error;
    return true;
  }
  if (!peer->open) mesh_->want(peer->rank);
  const int at_once = peer->open ? peer->outbox.stream_at_once(send.header) : -1;
  if (at_once >= 0) {
    Stream& stream = *peer->streams[static_cast<std::size_t>(at_once)];
    if (stream.takes_more()) return start_at_once(stream, send);
  }
  peer->outbox.push(send);
  starting_ = &send;
  write(*peer);
  // Null if this send is complete; an error reaches its waiter through the scheduler.
  return std::exchange(starting_, nullptr) == nullptr;
}

// The usual case: nothing is queued, so the whole message goes in one call.
bool TcpTransport::start_at_once(Stream& stream, Send& send) {
  Peer& peer = stream.peer;
  const MessageOpening opening = whole_opening(send.header);
  const iovec parts[2] = {{const_cast<MessageOpening*>(&opening), sizeof opening},
                          {const_cast<std::byte*>(send.data), send.header.length}};
  const std::size_t bytes = sizeof opening + send.header.length;
  const ssize_t written = stream.write(parts);
  if (written >= 0 && static_cast<std::size_t>(written) == bytes) return true;
  const int cause = errno;
  if (written < 0 && !would_block(cause) && !stream.suspend(mesh_.get(), cause)) {
    lose(peer, cause);
    send.error = peer.error;
    return true;
  }
  try {
    peer.outbox.push_rest(send, opening, written < 0 ? 0 : static_cast<std::size_t>(written));
  } catch (const std::bad_alloc&) {  // the stream is cut inside a message
    lose(peer, out_of_memory());
    send.error = peer.error;
    return true;
  }
  return false;
}

bool TcpTransport::write(Peer& peer) {
  const std::size_t streams = peer.streams.size();
  const std::size_t start = peer.turn;
  std::size_t gone = 0;
  bool moved = false;
  int opening = -1;
  while (opening != peer.outbox.opening_stream()) {  // again after a move
    opening = peer.outbox.opening_stream();
    for (std::size_t s = 0; s < streams && peer.live && gone < turn_bytes; ++s) {
      Stream& stream = *peer.streams[(start + s) % streams];
      if (stream.socket) moved |= write_stream(peer, stream, turn_bytes / streams, gone);
      if (gone >= turn_bytes) peer.turn = start + s + 1;  // the next turn is that of the others
    }
  }
  if (peer.catching_up) peer.catching_up = peer.any_behind();
  return moved;
}

// Writes `most` bytes, or up to the end of a frame that goes beyond. `gone` counts them.
bool TcpTransport::write_stream(Peer& peer, Stream& stream, std::size_t most, std::size_t& gone) {
  const std::uint64_t since = stream.caught_up();
  const bool is_ready = stream.catch_up();
  const bool moved = stream.caught_up() != since;
  if (!is_ready) {
    if (!would_block(errno)) write_failed(stream, errno);
    return moved;
  }
  const std::size_t before = gone;
  while (gone - before < most) {
    const std::span<const iovec> parts = peer.outbox.next(stream.number);
    if (parts.empty()) break;
    const std::size_t wanted = bytes_of(parts);
    const ssize_t written = stream.write(parts);
    if (written < 0) {
      if (!would_block(errno)) write_failed(stream, errno);
      break;
    }
    const auto bytes = static_cast<std::size_t>(written);
    gone += bytes;
    if (Send* ended = peer.outbox.wrote(stream.number, bytes)) {
      if (ended == starting_) {
        starting_ = nullptr;
      } else {
        scheduler_.complete(*ended);
      }
    }
    if (bytes < wanted) break;
  }
  return moved || gone != before;
}

bool TcpTransport::read(Peer& peer) {
  if (!peer.live || (!mailbox_.accepts(peer.rank) && !peer.broken)) return false;
  bool moved = false;
  Stream* opening = nullptr;
  // A move is followed at once, but a peer that moves endlessly holds up nobody.
  for (std::size_t s = 0; s <= peer.streams.size() && opening != &peer.opening(); ++s) {
    if (!peer.live || (s != 0 && !mailbox_.accepts(peer.rank) && !peer.broken)) break;
    opening = &peer.opening();
    const bool has_some = opening->brings() || opening->reader.stalled();
    moved |= has_some && read_stream(peer, *opening);
  }
  for (auto& stream : peer.streams) {
    if (!peer.live || stream.get() == opening) continue;
    const bool matters = peer.inbox.expects_pieces() || opening->reader.said_goodbye() ||
                         peer.broken || stream->awaits_greeting();
    if (matters && stream->brings()) moved |= read_stream(peer, *stream);
  }
  return moved;
}

bool TcpTransport::read_stream(Peer& peer, Stream& stream) {
  const bool has_waited = stream.reader.stalled();
  if (const char* fault = stream.reader.resume()) {
    lose(peer, lost_by_fault(peer.rank, fault));
    return true;
  }
  const bool goes_on = has_waited && !stream.reader.stalled();
  std::size_t taken = 0;
  while (taken < turn_bytes) {
    std::span<const iovec> parts = stream.reader.targets();
    std::byte beyond;
    const iovec end_probe{&beyond, 1};
    if (parts.empty()) {
      if (stream.reader.stalled()) {
        // So that nobody waits for a connection which has nothing else to tell.
        const bool is_watched = stream.hung_up && !stream.suspend(mesh_.get(), end_of_stream);
        if (is_watched && stream.socket) stream.unwatch(epoll_.get());
        break;
      }
      parts = {&end_probe, 1};  // after a goodbye only the end may follow
    }
    const std::size_t wanted = bytes_of(parts);
    const ssize_t got = stream.read(parts);
    if (got < 0) {
      if (stream.fault()) {
        lose(peer, lost_by_fault(peer.rank, stream.fault()));
      } else if (!would_block(errno)) {
        stream_ended(peer, stream, errno);
      }
      break;
    }
    if (got == 0) {
      stream_ended(peer, stream, end_of_stream);
      break;
    }
    const auto bytes = static_cast<std::size_t>(got);
    taken += bytes;
    const bool after_goodbye = parts.data() == &end_probe;
    const char* fault = after_goodbye ? "bytes after a goodbye" : stream.reader.arrived(bytes);
    if (fault) {
      lose(peer, lost_by_fault(peer.rank, fault));
      break;
    }
    if (bytes < wanted) break;
    if (!mailbox_.accepts(peer.rank) && !peer.broken) break;
  }
  peer.heard_bytes += taken;
  if (peer.cut_short && taken != 0) peer.ending_ns = monotonic_ns();
  return goes_on || taken != 0;
}

bool TcpTransport::progress() {
  bool moved = false;
  for (Peer* peer : peers_) {
    if (!peer->outbox.empty() || peer->catching_up) moved |= write(*peer);
  }
  if (peers_.size() <= few_peers && (!mesh_ || mesh_->all_open())) {
    moved |= read_few();
  } else {
    moved |= read_ready();
  }
  if (mesh_ && (std::exchange(mesh_ready_, false) || mesh_->is_due()) && mesh_->step()) {
    moved |= take_links();
  }
  if (!departed_.empty()) check_departed();
  if (!unreported_.empty()) {
    report_lost();
    moved = true;
  }
  return moved;
}

bool TcpTransport::read_few() {
  const bool all = std::exchange(read_all_, false) || (++turn_ & others_mask) == 0;
  // Nobody asks epoll as long as messages come, and a peer may wait for another connection.
  if ((turn_ & mesh_mask) == 0) mesh_ready_ = true;
  bool moved = false;
  bool any = false;
  for (Peer* peer : peers_) {
    if (!all && !mailbox_.awaited(peer->rank)) continue;
    any = true;
    moved |= read(*peer);
  }
  if (any) return moved;
  for (Peer* peer : peers_) moved |= read(*peer);
  return moved;
}

// epoll tells on which streams messages begin; the others matter while pieces are due.
bool TcpTransport::read_ready() {
  bool moved = false;
  poll_events();
  for (Peer* peer : ready_) moved |= read(*peer);
  for (Peer* peer : peers_) {
    if (!peer->live) continue;
    Stream& opening = peer->opening();
    const bool others = peer->inbox.expects_pieces() || opening.reader.said_goodbye();
    const bool holds = opening.holds() || opening.reader.stalled() || peer->holds_early();
    if (others || peer->cut_short || holds) moved |= read(*peer);
    if (opening.socket && !(opening.watched & EPOLLIN) && mailbox_.accepts(peer->rank)) {
      opening.watch(epoll_.get(), EPOLLIN);
    }
  }
  return moved;
}

// Fills ready_ with the readable peers; returns the number of events.
int TcpTransport::poll_events() {
  epoll_event events[64];
  ready_.clear();
  mesh_ready_ = false;
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr == nullptr) {
      mesh_ready_ = true;
      continue;
    }
    Stream& stream = *static_cast<Stream*>(events[i].data.ptr);
    Peer& peer = stream.peer;
    // The end of a connection counts even where no more messages are accepted from the peer.
    if (events[i].events & (EPOLLHUP | EPOLLERR)) peer.broken = stream.hung_up = true;
    if (!(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) continue;
    if (std::find(ready_.begin(), ready_.end(), &peer) == ready_.end()) ready_.push_back(&peer);
  }
  return std::max(count, 0);
}

bool TcpTransport::busy() const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer* peer) {
    return !peer->outbox.empty() || mailbox_.awaited(peer->rank);
  });
}

bool TcpTransport::arm() {
  if (!unreported_.empty()) return false;
  for (Peer* peer : departed_) {
    if (mailbox_.awaited(peer->rank)) return false;
  }
  bool held = false;
  for (Peer* peer : peers_) {
    if (!peer->live) continue;
    const bool accepts = mailbox_.accepts(peer->rank);
    const Stream& opening = peer->opening();
    const bool others =
        peer->inbox.expects_pieces() || peer->cut_short || opening.reader.said_goodbye();
    held |= accepts && opening.reader.stalled();
    for (auto& stream : peer->streams) {
      std::uint32_t events = 0;
      const bool matters = stream.get() == &opening || (others && !stream->reader.stalled());
      const bool is_last = peer->broken && !stream->reader.stalled();
      held |= ((accepts && matters) || is_last) && stream->holds();
      if (!stream->socket) continue;
      if ((accepts && matters) || stream->awaits_greeting()) events |= EPOLLIN;
      const bool writes = stream->takes_more() && !peer->outbox.next(stream->number).empty();
      if (writes || stream->has_to_send()) events |= EPOLLOUT;
      stream->watch(epoll_.get(), events);
    }
  }
  read_all_ = held || (epoll_ && poll_events() != 0);
  return !read_all_;
}

void TcpTransport::quiesce(const CommState& comm, const Error& error) {
  for (Peer* peer : peers_) {
    try {
      peer->outbox.quiesce(&comm, error, true);
    } catch (const std::bad_alloc&) {  // its messages cannot be completed
      lose(*peer, error);
    }
  }
}

// The peer expects this rank, too, and only the higher one connects.
void TcpTransport::expect(int peer) {
  const Peer* one = find(peer);
  if (one && one->live && !one->open && peer < rank_) mesh_->want(peer);
}

std::uint64_t TcpTransport::heard_from(int peer) const { return find(peer)->heard_bytes; }

void TcpTransport::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const Peer* peer : peers_) peer->outbox.for_each_sending(see);
}

void TcpTransport::close(std::uint64_t deadline_ns) {
  const auto waiting = [](const Peer* peer) {
    return peer->live && (!peer->outbox.empty() || peer->catching_up || peer->any_suspended() ||
                          peer->is_unacknowledged());
  };
  while (std::ranges::any_of(peers_, waiting) && monotonic_ns() < deadline_ns) {
    const std::uint64_t soon_ns = monotonic_ns() + 2'000'000;  // attempts to connect are repeated
    if (!progress() && arm()) {
      wait_for(epoll_.get(), EPOLLIN, mesh_ ? std::min(soon_ns, deadline_ns) : deadline_ns);
    }
  }
  mesh_.reset();
  for (Peer* peer : peers_) {
    if (!std::exchange(peer->live, false)) continue;
    const bool in_order = peer->outbox.empty() && !peer->catching_up;
    for (auto& stream : peer->streams) {
      if (!stream->socket) continue;
      const int fd = stream->socket.get();
      if (in_order) stream->say_goodbye(deadline_ns);
      ::shutdown(fd, SHUT_WR);
      // Closing a socket with unread data makes the kernel drop what is still to be sent.
      std::byte unread[4096];
      while (::recv(fd, unread, sizeof unread, MSG_DONTWAIT | MSG_TRUNC) > 0) {
      }
      stream->socket.reset();
    }
    const Error closed(Code::invalid_usage, "this rank has closed its connections");
    peer->error = closed;
    peer->outbox.quiesce(nullptr, closed, false);
    peer->inbox.abandon(closed);
  }
}

}  // namespace pith
