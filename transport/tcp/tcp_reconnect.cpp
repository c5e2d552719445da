#include "transport/tcp/tcp_reconnect.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <limits>

#include "transport/tcp/tcp_address.hpp"

namespace pith {

Reconnect reconnect_of(std::string_view text) {
  if (text == "always") return Reconnect::always;
  return text == "never" ? Reconnect::never : Reconnect::between_hosts;
}

bool outlives_connections(Reconnect when, std::string_view address, std::string_view other) {
  return when == Reconnect::always ||
         (when == Reconnect::between_hosts && host_of(address) != host_of(other));
}

std::size_t unacknowledged_bytes(int fd) {
  int bytes = 0;
  // In doubt all.
  if (::ioctl(fd, SIOCOUTQ, &bytes) != 0) return std::numeric_limits<std::size_t>::max() / 2;
  return static_cast<std::size_t>(std::max(bytes, 0));
}

}  // namespace pith
