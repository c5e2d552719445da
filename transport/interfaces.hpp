// Which of this machine's addresses a process listens on and tells the others.
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

// What the settings IFNAME and SOCKET_FAMILY ask for, as they were given; empty: no wish.
struct InterfaceWish {
  std::string_view names;   // NCCL's syntax: "eth,ib" prefixes, "=eth0" exact, "^docker" all others
  std::string_view family;  // "AF_INET" or "AF_INET6"
};

// In the system's order. Link-local IPv6 addresses are left out: what they mean ends at the host.
Expected<std::vector<Interface>> list_interfaces();

// The first address that the wish allows. Interfaces that are not named come in this order: those
// that may lead to other hosts, the bridges of containers and virtual machines, loopback.
Expected<std::string> choose_host(std::span<const Interface> interfaces, const InterfaceWish& wish);

}  // namespace pith
