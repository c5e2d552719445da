#include "transport/shm/shm_bell.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <string>

#include "core/descriptor_limit.hpp"

namespace pith {

AbstractName ShmBell::of(std::string_view name) {
  return AbstractName(std::string(name) + "-bell");
}

Error ShmBell::listen(const AbstractName& own) {
  socket_ = Descriptor(open_with_room(
      [] { return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
  if (!socket_) return system_error("socket by which ranks of this host are woken", errno);
  if (::bind(socket_.get(), own.get(), own.length) == 0) return {};
  return system_error(fmt::format("bind to abstract socket {}", own.address.sun_path + 1), errno);
}

// Where the queue is full the peer has been rung already; where nobody listens it is gone.
void ShmBell::ring(const AbstractName& peers) const {
  const char word = 0;
  [[maybe_unused]] const auto sent = ::sendto(
      socket_.get(), &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT, peers.get(), peers.length);
}

// Bounded, as whoever rings all the time must not hold this rank up.
void ShmBell::drain() const {
  constexpr int most = 64;
  char word = 0;
  for (int i = 0; i < most && ::recv(socket_.get(), &word, sizeof word, MSG_DONTWAIT) >= 0; ++i) {
  }
}

}  // namespace pith
