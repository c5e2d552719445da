#include "startup/root_place.hpp"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/log.hpp"
#include "startup/listen_host.hpp"
#include "transport/interfaces.hpp"
#include "transport/socket.hpp"

namespace pith {

namespace {

bool is_ip6(std::string_view host) { return host.find(':') != std::string_view::npos; }

std::string with_port(const std::string& host, std::uint16_t port) {
  return is_ip6(host) ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

// Resolves a name to a numeric address, preferably not loopback. All ranks must choose the same
// family, so IPv4 is preferred unless IPv6 is asked for.
Expected<std::string> resolve_name(const std::string& name, const std::string& family) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int status = ::getaddrinfo(name.c_str(), nullptr, &hints, &first);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(first, ::freeaddrinfo);
  if (status != 0) {
    return Error(Code::system, fmt::format("the host of rank 0, \"{}\", has no address: {}", name,
                                           ::gai_strerror(status)));
  }
  const int wanted = family == "AF_INET6" ? AF_INET6 : AF_INET;
  std::string best;
  int best_standing = 0;
  for (const addrinfo* one = first; one; one = one->ai_next) {
    Address address;
    address.length = one->ai_addrlen;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    const std::string host = format_host(address);
    const int standing = 1 + 2 * !is_loopback(host) + (one->ai_family == wanted);
    if (standing <= best_standing) continue;
    best = host;
    best_standing = standing;
  }
  return best;
}

bool has_address(const std::vector<Interface>& interfaces, const std::string& host) {
  return std::any_of(interfaces.begin(), interfaces.end(),
                     [&](const Interface& one) { return one.host == host; });
}

// Warns that rank 0's address is not one of this host: correct behind a router, else a mistake that
// would only show as ranks that do not join. `host`: numeric. Silent for loopback, which is how
// /etc/hosts often maps a host's own name.
void say_not_ours(const Launch& launch, const std::string& host,
                  const std::vector<Interface>& interfaces) {
  if (is_loopback(host)) return;
  std::string ours;
  for (const Interface& one : interfaces) ours += (ours.empty() ? "" : ", ") + one.host;
  const std::string also = launch.host == host ? "" : fmt::format(" ({})", host);
  log(LogLevel::warn,
      fmt::format("rank 0 is to listen at {}{} port {}, by {}, which is no address of this host "
                  "({}): it is taken for that of a router that leads here, and rank 0 listens at "
                  "all its addresses",
                  launch.host, also, launch.port, launch.root_variable(), ours));
}

}  // namespace

Expected<RootPlace> find_root(const Launch& launch, const Settings& settings) {
  RootPlace place;
  place.loopback = launch.one_host || is_loopback(launch.host);
  if (place.loopback) {
    const bool six = launch.host == "::1" || settings.socket_family == "AF_INET6";
    const bool numeric = launch.host.starts_with("127.");
    place.listen = numeric ? launch.host : six ? "::1" : "127.0.0.1";
    place.address = with_port(place.listen, launch.port);
    return place;
  }
  const Expected<std::string> host = resolve_name(launch.host, settings.socket_family);
  if (!host) return host.error();
  place.listen = *host;
  place.address = with_port(*host, launch.port);
  // Rank 0 listens at all addresses where the name resolves to loopback (a host's own name in its
  // /etc/hosts, useless to others) or to an address of a router in front of it. Rank 0 and ranks on
  // its host then connect by their own interface, because the address of that connection is what
  // they tell other ranks.
  const bool own_name = is_loopback(*host);
  if (launch.rank != 0 && !own_name) return place;
  const Expected<std::vector<Interface>> interfaces = list_interfaces();
  if (!interfaces) return interfaces.error();
  if (has_address(*interfaces, *host) && !own_name) return place;
  say_not_ours(launch, *host, *interfaces);
  const Expected<std::string> own = root_host(settings);
  if (!own) return own.error();
  const bool any_ip6 = std::ranges::any_of(
      *interfaces, [](const Interface& one) { return one.is_ip6() && !one.loopback; });
  place.listen = is_ip6(*own) || any_ip6 ? "::" : "0.0.0.0";
  place.address = with_port(*own, launch.port);
  return place;
}

}  // namespace pith
