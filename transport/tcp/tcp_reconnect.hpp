// Between which ranks a TCP connection that breaks is made anew, and its bytes go on: those of the
// data path (tcp_resumption.hpp) and of the control plane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pith {

enum class Reconnect : std::uint8_t { never, between_hosts, always };

// As the setting says it: "never", "hosts", "always".
Reconnect reconnect_of(std::string_view text);
// For ranks at these addresses, "host:port" or as in tcp_address.hpp. Both ends see the same.
bool outlives_connections(Reconnect when, std::string_view address, std::string_view other);

// How many of the last bytes sent over a connection may lack an acknowledgement.
std::size_t unacknowledged_bytes(int fd);

}  // namespace pith
