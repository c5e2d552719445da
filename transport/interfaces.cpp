#include "transport/interfaces.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "settings/settings_origin.hpp"
#include "transport/socket.hpp"

namespace pith {
namespace {

// Container and virtual machine bridges: up and addressed, but they lead to no other host.
constexpr std::string_view bridges[] = {"docker", "br-", "virbr"};

// The parts of "^=a,b".
struct NameList {
  bool exclude = false;
  bool exact = false;
  std::string_view names;

  explicit NameList(std::string_view text) : names(text) {
    if (names.starts_with('^')) {
      exclude = true;
      names.remove_prefix(1);
    }
    if (names.starts_with('=')) {
      exact = true;
      names.remove_prefix(1);
    }
  }

  bool lists(std::string_view name) const {
    for (std::string_view rest = names; !rest.empty();) {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      if (!one.empty() && (exact ? name == one : name.starts_with(one))) return true;
    }
    return false;
  }
  bool allows(std::string_view name) const { return names.empty() || lists(name) != exclude; }
  // The first interface of the list is taken, even a bridge or loopback.
  bool chooses() const { return !names.empty() && !exclude; }
};

// Lower is better.
int standing(const Interface& interface) {
  if (interface.loopback) return 2;
  const auto named = [&](std::string_view prefix) { return interface.name.starts_with(prefix); };
  return std::any_of(std::begin(bridges), std::end(bridges), named) ? 1 : 0;
}

bool has_family(const Interface& interface, std::string_view family) {
  return family.empty() || interface.is_ip6() == (family == "AF_INET6");
}

Error nothing_fits(std::span<const Interface> interfaces, const InterfaceWish& wish) {
  std::string wishes;
  if (!wish.names.empty()) wishes += fmt::format("{} is \"{}\"", variable_of("IFNAME"), wish.names);
  if (!wish.family.empty()) {
    wishes += fmt::format("{}{} is \"{}\"", wishes.empty() ? "" : " and ",
                          variable_of("SOCKET_FAMILY"), wish.family);
  }
  std::string there;
  for (const Interface& one : interfaces) {
    there += fmt::format("{}{} ({})", there.empty() ? "" : ", ", one.name, one.host);
  }
  return {Code::invalid_usage,
          fmt::format("no network interface to listen on: {}, and those that are up are {}",
                      wishes.empty() ? "any would do" : wishes, there.empty() ? "none" : there)};
}

bool is_link_local(const sockaddr* address) {
  if (address->sa_family != AF_INET6) return false;
  sockaddr_in6 six;
  std::memcpy(&six, address, sizeof six);
  return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr);
}

}  // namespace

Expected<std::vector<Interface>> list_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return system_error("list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, ::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* one = first; one; one = one->ifa_next) {
    constexpr unsigned alive = IFF_UP | IFF_RUNNING;
    if (!one->ifa_addr || (one->ifa_flags & alive) != alive) continue;
    const bool six = one->ifa_addr->sa_family == AF_INET6;
    if (!six && one->ifa_addr->sa_family != AF_INET) continue;
    if (is_link_local(one->ifa_addr)) continue;
    Address address;
    address.length = six ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    std::memcpy(&address.storage, one->ifa_addr, address.length);
    found.push_back({one->ifa_name, format_host(address), (one->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

Expected<std::string> choose_host(std::span<const Interface> interfaces,
                                  const InterfaceWish& wish) {
  const NameList names(wish.names);
  const Interface* best = nullptr;
  for (const Interface& one : interfaces) {
    if (!names.allows(one.name) || !has_family(one, wish.family)) continue;
    const bool better = !best || (!names.chooses() && standing(one) < standing(*best));
    if (better) best = &one;
  }
  if (!best) return nothing_fits(interfaces, wish);
  return best->host;
}

std::vector<std::string> choose_rails(std::span<const Interface> interfaces,
                                      const InterfaceWish& wish, std::string_view host,
                                      std::size_t most) {
  const NameList names(wish.names);
  const auto first = std::ranges::find(interfaces, host, &Interface::host);
  if (first == interfaces.end()) return {};
  std::vector<std::string_view> used = {first->name};
  std::vector<std::string> rails;
  for (const Interface& one : interfaces) {
    const bool is_allowed = names.allows(one.name) && one.is_ip6() == first->is_ip6() &&
                            (names.chooses() || standing(one) <= standing(*first));
    if (!is_allowed || std::ranges::find(used, one.name) != used.end()) continue;
    if (rails.size() == most) break;
    used.emplace_back(one.name);
    rails.push_back(one.host);
  }
  return rails;
}

}  // namespace pith
