#include "comm/listen_host.hpp"

#include "transport/interfaces.hpp"

namespace pith {

Expected<std::string> root_host(const Settings& settings) {
  if (!settings.host.empty()) return settings.host;
  const Expected<std::vector<Interface>> interfaces = list_interfaces();
  if (!interfaces) return interfaces.error();
  return choose_host(*interfaces, {settings.ifname, settings.socket_family});
}

Expected<std::string> rank_host(const Settings& settings, const std::string& to_root) {
  const bool six = to_root.find(':') != std::string::npos;
  const bool fits =
      settings.socket_family.empty() || settings.socket_family == (six ? "AF_INET6" : "AF_INET");
  if (settings.host.empty() && settings.ifname.empty() && fits) return to_root;
  return root_host(settings);
}

}  // namespace pith
