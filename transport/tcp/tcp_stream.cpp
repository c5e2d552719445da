// TcpTransport's streams where they outlive their connections.
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>
#include <utility>

#include "core/log.hpp"
#include "transport/tcp/tcp_peer.hpp"
#include "transport/tcp/tcp_reconnect.hpp"
#include "transport/tcp/tcp_silence.hpp"

namespace pith {

// Of a record of which the end is missing the other end has nothing.
std::size_t TcpTransport::Stream::unacknowledged() const {
  return unacknowledged_bytes(socket.get()) + (seal ? seal_record_bytes : 0);
}

// A seal counts what it has written when all of its records are gone.
std::size_t TcpTransport::Stream::uncounted() const { return seal ? seal_buffer_bytes : 0; }

ssize_t TcpTransport::Stream::get_bytes(std::span<std::byte> into) {
  const iovec part{into.data(), into.size()};
  return get({&part, 1});
}

bool TcpTransport::Stream::catch_up() {
  if (!resumption) return true;
  const auto get_some = [this](std::span<std::byte> into) { return get_bytes(into); };
  const auto put_some = [this](std::span<const std::byte> bytes) {
    const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return put({&part, 1});
  };
  const ssize_t done = resumption->catch_up(get_some, put_some, uncounted());
  if (done == 0) errno = EPIPE;
  return done > 0;
}

ssize_t TcpTransport::Stream::read_greeting() {
  return resumption->read_greeting([this](std::span<std::byte> into) { return get_bytes(into); },
                                   uncounted());
}

ssize_t TcpTransport::Stream::read(std::span<const iovec> parts) {
  if (!resumption) return get(parts);
  if (const std::size_t early = resumption->take_early(parts)) {
    resumption->received(early);
    return static_cast<ssize_t>(early);
  }
  if (!socket) return end_of_connections();
  if (const ssize_t greeted = read_greeting(); greeted <= 0) return greeted;
  const ssize_t got = get(parts);
  if (got > 0) resumption->received(static_cast<std::size_t>(got));
  return got;
}

// As read() of a stream that has no connection, and nothing left that has come early.
ssize_t TcpTransport::Stream::end_of_connections() const {
  if (reader.said_goodbye()) return 0;
  errno = resumption->given_up() ? resumption->cause() : EAGAIN;
  return errno == 0 ? 0 : -1;
}

Error TcpTransport::Stream::begin(const ConnectionKeys* keys, int epoll) {
  if (keys) {
    Expected<std::unique_ptr<TcpSeal>> made = TcpSeal::create(*keys);
    if (!made) return made.error();
    seal = std::move(*made);
  }
  epoll_event event{};
  event.events = watched = number == 0 ? static_cast<std::uint32_t>(EPOLLIN) : 0;
  event.data.ptr = this;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    return system_error("watch a connection", errno);
  }
  if (!resumption) return {};
  hung_up = false;
  peer.catching_up = true;
  resumption->begin_connection();
  // At once, as this rank may be in no call while the other one waits. Failures are seen again.
  static_cast<void>(catch_up());
  return {};
}

bool TcpTransport::Stream::suspend(TcpMesh* mesh, int cause) {
  if (!resumption || !socket || !mesh || reader.said_goodbye() || is_silence(cause)) return false;
  if (!leave_connection()) return false;
  resumption->suspend(cause);
  // Its end has been read, so flow control holds again for the others.
  if (!peer.cut_short) peer.broken = false;
  if (!mesh->reopen(peer.rank, number)) give_up();
  return suspended() || resumption->holds();
}

// What is left is read even if no message is wanted.
void TcpTransport::Stream::give_up() {
  resumption->give_up();
  peer.broken = true;
}

Error TcpTransport::Stream::resume(Descriptor connection, const ConnectionKeys* keys, int epoll) {
  if (!resumption || is_over()) return {};
  const bool was_known = suspended();
  if (!was_known && !leave_connection()) return out_of_memory();
  if (fault()) return lost_by_fault(peer.rank, fault());
  log(LogLevel::warn,
      fmt::format("connection {} to rank {} was broken ({}), and goes on over another", number,
                  peer.rank,
                  was_known ? how_it_ended(resumption->cause()) : "as that rank has found"));
  socket = std::move(connection);
  const auto lacks_one = [](const auto& stream) { return !stream->socket; };
  peer.lacks_connections = std::ranges::any_of(peer.streams, lacks_one);
  if (!peer.cut_short) peer.broken = false;  // flow control holds again
  return begin(keys, epoll);
}

// Closes the socket, and keeps what it has brought: the peer need not have it any more. False: no
// memory for that.
bool TcpTransport::Stream::leave_connection() {
  constexpr std::size_t step = std::size_t{64} << 10;
  // The other direction may still be whole. From here on the kernel refuses what comes, where it
  // would acknowledge bytes between the last read and the end of the socket.
  if (socket) ::shutdown(socket.get(), SHUT_RDWR);
  try {
    ssize_t got = socket ? read_greeting() : 0;
    while (got > 0) {
      got = get_bytes(resumption->early_room(step));
      resumption->came_early(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    }
  } catch (const std::bad_alloc&) {
    return false;
  }
  socket.reset();
  seal.reset();
  peer.lacks_connections = true;
  return true;
}

}  // namespace pith
