// Which of this machine's addresses a process listens on and gives to the other ranks.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace pith {

// One address of a network interface that is up.
struct Interface {
  std::string name;
  std::string host;  // "10.0.0.1", "fd00::1"
  bool loopback = false;

  bool is_ip6() const { return host.find(':') != std::string::npos; }
};

// The settings IFNAME and SOCKET_FAMILY as they were given; empty: no preference.
struct InterfaceWish {
  std::string_view names;   // NCCL's syntax: "eth,ib" prefixes, "=eth0" exact, "^docker" all others
  std::string_view family;  // "AF_INET" or "AF_INET6"
};

// In the system's order, without link-local IPv6 addresses, which mean nothing on other hosts.
Expected<std::vector<Interface>> list_interfaces();

// The first address that `wish` allows. Where it names no interfaces, those that may lead to other
// hosts come first, then bridges of containers and virtual machines, then loopback.
Expected<std::string> choose_host(std::span<const Interface> interfaces, const InterfaceWish& wish);
// Addresses that may carry connections beside `host`: the first of each other interface that `wish`
// allows, of host's family, at most `most`. Those of bridges and of loopback only if they are
// named, or for a host that is one itself.
std::vector<std::string> choose_rails(std::span<const Interface> interfaces,
                                      const InterfaceWish& wish, std::string_view host,
                                      std::size_t most);

}  // namespace pith
