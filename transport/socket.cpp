#include "transport/socket.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "transport/interfaces.hpp"

namespace pith {
namespace {

Error deadline_error(std::string what) {
  return Error(Code::remote, fmt::format("{}: no answer within the time allowed", what));
}

Expected<Address> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found);
  if (status != 0) {
    return Error(Code::invalid_argument,
                 fmt::format("'{}' is no IP address: {}", host, ::gai_strerror(status)));
  }
  Address address;
  address.length = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  return address;
}

Expected<Descriptor> new_socket(const Address& address) {
  Descriptor socket(open_with_room([&] {
    return ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  }));
  if (!socket) return system_error("create a TCP socket", errno);
  return socket;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string words_of(const PortRange& ports) {
  if (ports.first == 0) return "any port";
  const std::string to = ports.last > ports.first ? fmt::format("-{}", ports.last) : "";
  return fmt::format("port {}{} ({})", ports.first, to, ports.setting);
}

// Only PITH_HOST can name an address of another host; all others come from the system.
Error not_of_this_host(const Error& error) {
  std::string ours;
  const Expected<std::vector<Interface>> interfaces = list_interfaces();
  for (const Interface& one : *interfaces) {
    ours += fmt::format("{}{} ({})", ours.empty() ? "" : ", ", one.name, one.host);
  }
  return {error.code(), fmt::format("{}; expected of PITH_HOST one of this host's addresses: {}",
                                    error.message(), ours)};
}

const sockaddr* raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

}  // namespace

Expected<Address> parse_address(std::string_view text) {
  const Error wrong(Code::invalid_argument,
                    fmt::format("'{}' is not of the form address:port or [address]:port", text));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return wrong;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return wrong;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong;
  }
  std::uint16_t port = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (status != std::errc() || end != digits.data() + digits.size()) return wrong;
  return resolve(std::string(host), port);
}

std::string format_address(const Address& address) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int status = ::getnameinfo(raw(address), address.length, host, sizeof host, port,
                                   sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  if (status != 0) return "an unknown address";
  const bool six = address.storage.ss_family == AF_INET6;
  return six ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string format_host(const Address& address) {
  char host[NI_MAXHOST];
  const int status =
      ::getnameinfo(raw(address), address.length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return status == 0 ? host : "an unknown address";
}

Expected<Address> local_address(int fd) {
  Address address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return system_error("ask a socket for its address", errno);
  }
  return address;
}

std::string peer_name(int fd) {
  Address address;
  address.length = sizeof address.storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return "a closed connection";
  }
  return format_address(address);
}

Expected<Descriptor> listen_on(std::string_view host, PortRange ports) {
  int last_errno = 0;
  for (int port = ports.first; port <= std::max(ports.first, ports.last); ++port) {
    Expected<Address> address = resolve(std::string(host), static_cast<std::uint16_t>(port));
    if (!address) return address.error();
    Expected<Descriptor> socket = new_socket(*address);
    if (!socket) return socket.error();
    const int on = 1;
    // Connections that linger on a port from an earlier use must not block it.
    if (port != 0) ::setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const int off = 0;  // "::" means IPv4, too, whatever the system's default
    if (host == "::") ::setsockopt(socket->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (::bind(socket->get(), raw(*address), address->length) == 0 &&
        ::listen(socket->get(), SOMAXCONN) == 0) {
      return std::move(*socket);
    }
    last_errno = errno;
    if (last_errno != EADDRINUSE && last_errno != EACCES) break;
  }
  const Error error =
      system_error(fmt::format("listen on {}, {}", host, words_of(ports)), last_errno);
  return last_errno == EADDRNOTAVAIL ? not_of_this_host(error) : error;
}

Expected<Descriptor> accept_one(int listener) {
  for (;;) {
    Descriptor socket(open_with_room(
        [&] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }));
    if (socket) {
      send_at_once(socket.get());
      return socket;
    }
    // The peer gave up while still in the queue.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Descriptor();
    return system_error("accept a connection", errno);
  }
}

Expected<Descriptor> begin_connect(const Address& address) {
  Expected<Descriptor> socket = new_socket(address);
  if (!socket) return socket.error();
  send_at_once(socket->get());
  if (::connect(socket->get(), raw(address), address.length) == 0 || errno == EINPROGRESS ||
      errno == EINTR) {
    return socket;
  }
  return system_error(fmt::format("connect to {}", format_address(address)), errno);
}

int connect_status(int fd) {
  int status = 0;
  socklen_t size = sizeof status;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &status, &size) == 0 ? status : errno;
}

Error connect_result(int fd, const Address& address) {
  const int status = connect_status(fd);
  if (status == 0) return {};
  return system_error(fmt::format("connect to {}", format_address(address)), status);
}

Expected<Descriptor> connect_to(const Address& address, const Patience& patience) {
  Expected<Descriptor> socket = begin_connect(address);
  if (!socket) return socket.error();
  if (!wait_for(socket->get(), POLLOUT, patience)) {
    return deadline_error(fmt::format("connect to {}", format_address(address)));
  }
  if (Error error = connect_result(socket->get(), address)) return error;
  return socket;
}

int timeout_ms(std::uint64_t deadline_ns) {
  const std::uint64_t now = monotonic_ns();
  if (now >= deadline_ns) return 0;
  return static_cast<int>(
      std::min<std::uint64_t>((deadline_ns - now + 999'999) / 1'000'000, 3'600'000));
}

bool wait_for(int fd, short events, const Patience& patience) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, patience.nap_ms());
    if (ready > 0) return true;
    if (ready == 0 && patience.over()) return false;
    if (ready < 0 && errno != EINTR) return true;  // the transfer that follows finds the cause
  }
}

Error send_all(int fd, std::span<const std::byte> data, const Patience& patience) {
  while (!data.empty()) {
    const ssize_t sent = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      data = data.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, patience)) {
        return deadline_error(fmt::format("send to {}", peer_name(fd)));
      }
    } else if (errno != EINTR) {
      return system_error(fmt::format("send to {}", peer_name(fd)), errno);
    }
  }
  return {};
}

Error recv_all(int fd, std::span<std::byte> data, const Patience& patience) {
  while (!data.empty()) {
    const ssize_t got = ::recv(fd, data.data(), data.size(), MSG_DONTWAIT);
    if (got > 0) {
      data = data.subspan(static_cast<std::size_t>(got));
    } else if (got == 0) {
      return Error(Code::remote,
                   fmt::format("receive from {}: the connection was closed", peer_name(fd)));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLIN, patience)) {
        return deadline_error(fmt::format("receive from {}", peer_name(fd)));
      }
    } else if (errno != EINTR) {
      return system_error(fmt::format("receive from {}", peer_name(fd)), errno);
    }
  }
  return {};
}

}  // namespace pith
