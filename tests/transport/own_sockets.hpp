// The TCP connections of this process, for tests that break them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace pith::test {

inline int port_of(const std::string& address) {
  return std::atoi(address.c_str() + address.rfind(':') + 1);
}

// 0 where it is no IPv4 socket.
inline int own_port(int fd) {
  sockaddr_in own{};
  socklen_t size = sizeof own;
  const bool is_known = ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  return is_known && own.sin_family == AF_INET ? ntohs(own.sin_port) : 0;
}

// Of all connections of which one end has the port, the ends in this process.
inline std::vector<int> sockets_at(int port) {
  std::vector<int> found;
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in other{};
    socklen_t size = sizeof other;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &size) != 0) continue;
    if (own_port(fd) == port || ntohs(other.sin_port) == port) found.push_back(fd);
  }
  return found;
}

}  // namespace pith::test
