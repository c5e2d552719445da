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

}  // namespace

ssize_t ControlLink::send_some(const void* data, std::size_t size) const {
  return ::send(fd.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t ControlLink::receive_some(void* into, std::size_t size) const {
  return ::recv(fd.get(), into, size, MSG_DONTWAIT);
}

// False, with errno: not all that goes before anything new has been sent.
bool ControlLink::catch_up() {
  if (!resumption) return true;
  const auto get = [this](std::span<std::byte> to) { return receive_some(to.data(), to.size()); };
  const auto put = [this](std::span<const std::byte> of) {
    return send_some(of.data(), of.size());
  };
  const ssize_t done = resumption->catch_up(get, put, 0);
  if (done == 0) errno = EPIPE;
  return done > 0;
}

bool ControlLink::write() {
  if (state != State::open) return true;
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
  if (!resumption) return receive_some(into, size);
  const auto get = [this](std::span<std::byte> to) { return receive_some(to.data(), to.size()); };
  if (const ssize_t greeted = resumption->read_greeting(get, 0); greeted <= 0) return greeted;
  const ssize_t got = receive_some(into, size);
  if (got > 0) resumption->received(static_cast<std::size_t>(got));
  return got;
}

bool ControlLink::wants_to_write() const {
  if (state == State::connecting) return true;
  if (state == State::shaking) return handshake_writes;
  if (state != State::open) return false;
  if (resumption && resumption->is_behind()) return !resumption->to_send().empty();
  return out_done < out.size();
}

bool ControlLink::has_left() const {
  if (!leaving || state != State::open || !out.empty()) return false;
  return !resumption || (!resumption->is_behind() && unacknowledged_bytes(fd.get()) == 0);
}

bool ControlLink::suspend(int cause, std::uint64_t deadline) {
  if (!resumption || state != State::open) return false;
  resumption->suspend(cause);
  deadline_ns = deadline;
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
  // Of what breaks at once there is no end, so not one attempt after the other.
  not_before_ns = monotonic_ns() + retry_ns;
  resumption->begin_connection();
}

}  // namespace pith
