#include "control/tcp/control_link.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <span>

#include "core/clock.hpp"
#include "transport/tcp/tcp_reconnect.hpp"

namespace pith {

namespace {

constexpr std::uint64_t retry_ns = 50'000'000;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

ssize_t ControlLink::send_some(const void* data, std::size_t size) const {
  return ::send(fd.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Above 0: it is complete. Else as recv().
ssize_t ControlLink::read_greeting() {
  for (;;) {
    const std::span<std::byte> room =
        resumption ? resumption->greeting_room() : std::span<std::byte>();
    if (room.empty()) return 1;
    const ssize_t got = ::recv(fd.get(), room.data(), room.size(), 0);
    if (got <= 0) return got;
    bad_greeting = resumption->greeted(static_cast<std::size_t>(got), 0);
    if (!bad_greeting) continue;
    errno = EBADMSG;
    return -1;
  }
}

// False, with errno: not all that goes before anything new has been sent.
bool ControlLink::catch_up() {
  while (resumption && resumption->is_behind()) {
    const std::span<const std::byte> next = resumption->to_send();
    if (next.empty()) {
      const ssize_t greeted = read_greeting();
      if (greeted > 0) continue;
      if (greeted == 0) errno = EPIPE;
      return false;
    }
    const ssize_t sent = send_some(next.data(), next.size());
    if (sent < 0) return false;
    resumption->sent(static_cast<std::size_t>(sent));
  }
  return true;
}

bool ControlLink::write() {
  if (!catch_up()) return would_block(errno);
  while (out_done < out.size()) {
    iovec part{out.data() + out_done, out.size() - out_done};
    const ssize_t sent = send_some(part.iov_base, part.iov_len);
    if (sent < 0) return would_block(errno);
    out_done += static_cast<std::size_t>(sent);
    if (!resumption) continue;
    resumption->wrote({&part, 1}, static_cast<std::size_t>(sent),
                      [this] { return unacknowledged_bytes(fd.get()); });
  }
  out.clear();
  out_done = 0;
  return true;
}

ssize_t ControlLink::receive(char* into, std::size_t size) {
  if (bad_greeting) {
    errno = EBADMSG;
    return -1;
  }
  if (const ssize_t greeted = read_greeting(); greeted <= 0) return greeted;
  const ssize_t got = ::recv(fd.get(), into, size, 0);
  if (got > 0 && resumption) resumption->received(static_cast<std::size_t>(got));
  return got;
}

bool ControlLink::wants_to_write() const {
  if (state == State::connecting) return true;
  if (state == State::asking) return false;
  if (resumption && resumption->is_behind()) return !resumption->to_send().empty();
  return out_done < out.size();
}

bool ControlLink::suspend(int cause, std::uint64_t deadline) {
  if (!resumption || state != State::open) return false;
  resumption->suspend(cause);
  deadline_ns = deadline;
  not_before_ns = 0;
  state = State::broken;
  fd.reset();
  return true;
}

void ControlLink::try_again() {
  fd.reset();
  state = State::broken;
  not_before_ns = monotonic_ns() + retry_ns;
}

void ControlLink::resume(Descriptor connection) {
  fd = std::move(connection);
  silence = TcpSilence();
  state = State::open;
  resumption->resume();
}

}  // namespace pith
