#include "startup/listen_host.hpp"

#include <fmt/format.h>

#include "settings/settings_origin.hpp"
#include "transport/interfaces.hpp"

namespace pith {

namespace {

std::string rule_of(const Settings& settings) {
  if (!settings.host.empty()) return "PITH_HOST";
  std::string rule;
  if (!settings.ifname.empty()) rule = fmt::format("{}={}", variable_of("IFNAME"), settings.ifname);
  if (!settings.socket_family.empty()) {
    rule += fmt::format("{}{}={}", rule.empty() ? "" : ", ", variable_of("SOCKET_FAMILY"),
                        settings.socket_family);
  }
  return rule.empty() ? "the first that other hosts may reach" : rule;
}

}  // namespace

Expected<std::string> root_host(const Settings& settings) {
  if (!settings.host.empty()) return settings.host;
  const Expected<std::vector<Interface>> interfaces = list_interfaces();
  if (!interfaces) return interfaces.error();
  return choose_host(*interfaces, {settings.ifname, settings.socket_family});
}

Expected<HostChoice> explain_root_host(const Settings& settings) {
  const Expected<std::string> host = root_host(settings);
  if (!host) return host.error();
  HostChoice choice{*host, rule_of(settings), {}};
  const Expected<std::vector<Interface>> interfaces = list_interfaces();
  if (!interfaces) return interfaces.error();
  for (const Interface& one : *interfaces) {
    choice.considered.push_back(
        fmt::format("{} ({}{})", one.name, one.host, one.loopback ? ", loopback" : ""));
  }
  return choice;
}

Expected<std::string> rank_host(const Settings& settings, const std::string& to_root) {
  const bool six = to_root.find(':') != std::string::npos;
  const bool fits =
      settings.socket_family.empty() || settings.socket_family == (six ? "AF_INET6" : "AF_INET");
  if (settings.host.empty() && settings.ifname.empty() && fits) return to_root;
  return root_host(settings);
}

std::string rank_host_rule(const Settings& settings) {
  const bool wish = !settings.host.empty() || !settings.ifname.empty();
  return wish || !settings.socket_family.empty() ? rule_of(settings)
                                                 : "where the way to the bootstrap root leads out";
}

}  // namespace pith
