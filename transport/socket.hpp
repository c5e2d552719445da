// Sockets with ownership and descriptive errors: listening, connecting, whole transfers with a
// deadline.
//
// Deadlines are points of monotonic_ns(). Errors name the operation and the peer.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/clock.hpp"
#include "core/error.hpp"
#include "settings/port_range.hpp"

namespace pith {

// Owns a file descriptor. A forked child finds it closed and empty: a socket kept open by the child
// would hide its parent's death from the peers.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  friend class OpenDescriptors;

  int fd_ = -1;
  // In the list of all open descriptors, guarded by its lock.
  Descriptor* next_ = nullptr;
  Descriptor* previous_ = nullptr;
};

// An IPv4 or IPv6 address with its port.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// Whether an operation that failed so on a non-blocking socket can succeed later.
inline bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// "127.0.0.1:5000" or "[::1]:5000"; numeric only, so that no name server is asked.
Expected<Address> parse_address(std::string_view text);
std::string format_address(const Address& address);
std::string format_host(const Address& address);  // without brackets and port
// The local address of a socket, and its peer's.
Expected<Address> local_address(int fd);
std::string peer_name(int fd);

// All sockets are non-blocking, closed on exec, and send small messages at once (TCP_NODELAY).
Expected<Descriptor> listen_on(std::string_view host, PortRange ports = {});
// Returns an empty descriptor where no connection is pending.
Expected<Descriptor> accept_one(int listener);
// Begins to connect; once the socket is writable, `connect_result` returns the result, or
// `connect_status` its errno, 0 for success.
Expected<Descriptor> begin_connect(const Address& address);
int connect_status(int fd);
Error connect_result(int fd, const Address& address);
Expected<Descriptor> connect_to(const Address& address, const Patience& patience);

// Whole transfers, for start-up: block until all bytes are through or patience is over.
Error send_all(int fd, std::span<const std::byte> data, const Patience& patience);
Error recv_all(int fd, std::span<std::byte> data, const Patience& patience);

// Waits until one of POLLIN, POLLOUT holds; false once patience is over.
bool wait_for(int fd, short events, const Patience& patience);
// The time left in ms, for poll(): rounded up, so that a loop around it does not spin.
int timeout_ms(std::uint64_t deadline_ns);

}  // namespace pith
