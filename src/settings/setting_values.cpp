#include "settings/setting_values.hpp"

#include <arpa/inet.h>

#include "settings/transport_rule.hpp"

namespace pith {

Error bad_value(std::string_view name, const std::string& text, std::string_view expected) {
  return {Code::invalid_argument,
          fmt::format("PITH_{} is \"{}\", expected {}", name, text, expected)};
}

Error set_number(std::string_view name, const std::string& text, double least, double most,
                 double& out) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() ||
      !(value >= least && value <= most)) {  // written so that NaN is refused
    return bad_value(name, text, fmt::format("a number from {} to {}", least, most));
  }
  out = value;
  return {};
}

Error set_flag(std::string_view name, const std::string& text, bool& out) {
  if (text != "0" && text != "1") return bad_value(name, text, "0 or 1");
  out = text == "1";
  return {};
}

Error set_transport(const std::string& text, Settings& settings) {
  if (!TransportRule::valid(text)) {
    return bad_value("TRANSPORT", text,
                     fmt::format("a comma list of {}, or ^ and a list of those not to use",
                                 fmt::join(transport_names, ", ")));
  }
  settings.transport = text;
  return {};
}

Error set_host(const std::string& text, Settings& settings) {
  // A link-local IPv6 address names its interface after a percent sign.
  const std::string number = text.substr(0, text.find('%'));
  in_addr four{};
  in6_addr six{};
  const bool is_four = inet_pton(AF_INET, text.c_str(), &four) == 1;
  const bool is_six = inet_pton(AF_INET6, number.c_str(), &six) == 1;
  const bool is_any = is_four ? four.s_addr == INADDR_ANY : IN6_IS_ADDR_UNSPECIFIED(&six);
  if ((!is_four && !is_six) || is_any) {
    return bad_value("HOST", text, "one IPv4 or IPv6 address of this host, in numbers");
  }
  settings.host = text;
  return {};
}

Error set_ifname(const std::string& text, Settings& settings) {
  const std::size_t names = text.find_first_not_of("^=");
  if (names == std::string::npos || text.find_first_not_of(',', names) == std::string::npos) {
    return bad_value("IFNAME", text, "interfaces, as eth,ib or =eth0,eth1 or ^docker or ^=eth1");
  }
  settings.ifname = text;
  return {};
}

Error set_port_range(const std::string& text, Settings& settings) {
  Error wrong =
      bad_value("PORT_RANGE", text, "first-last, two ports from 1 to 65535 in this order");
  PortRange ports;
  const std::size_t dash = text.find('-');
  if (dash == std::string::npos) return wrong;
  const auto reads = [](const std::string& part, std::uint16_t& port) {
    return !set_integer<std::uint16_t>("PORT_RANGE", part, 1, 65535, port);
  };
  if (!reads(text.substr(0, dash), ports.first) || !reads(text.substr(dash + 1), ports.last)) {
    return wrong;
  }
  if (ports.first > ports.last) return wrong;
  settings.ports = ports;
  return {};
}

Error set_root(const std::string& text, Settings& settings) {
  const std::size_t colon = text.rfind(':');
  std::uint16_t port = 0;
  constexpr std::uint16_t least = 1;
  constexpr std::uint16_t most = 65535;
  const bool whole = colon != std::string::npos && colon > 0 &&
                     !set_integer("ROOT", text.substr(colon + 1), least, most, port);
  const std::string_view host = std::string_view(text).substr(0, whole ? colon : 0);
  const bool bracketed = host.starts_with('[') && host.ends_with(']') && host.size() > 2;
  if (host.empty() || (!bracketed && host.find_first_of(":[]") != std::string::npos)) {
    return bad_value("ROOT", text, "host:port or [IPv6 address]:port, where rank 0 is to listen");
  }
  settings.root = text;
  return {};
}

}  // namespace pith
