// Addresses of UNIX sockets that are not in a file system.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace pith {

struct AbstractName {
  AbstractName() = default;
  explicit AbstractName(std::string_view name) {
    address.sun_family = AF_UNIX;
    // A zero byte in front makes the name abstract.
    const std::size_t bytes = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), bytes);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t length = 0;  // 0: no name
};

}  // namespace pith
