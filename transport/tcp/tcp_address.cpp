#include "transport/tcp/tcp_address.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace pith {

namespace {

constexpr char separator = '|';

bool is_ip6(std::string_view host) { return host.find(':') != host.npos; }

}  // namespace

std::string_view listening_host(std::string_view host, std::span<const std::string> rails) {
  if (rails.empty()) return host;
  return is_ip6(host) ? "::" : "0.0.0.0";
}

std::string address_with_rails(std::string_view listener, std::string_view host,
                               std::span<const std::string> rails) {
  if (rails.empty()) return std::string(listener);
  const std::string_view port = listener.substr(listener.rfind(':'));
  const auto at = [port](std::string_view one) {
    return is_ip6(one) ? fmt::format("[{}]{}", one, port) : fmt::format("{}{}", one, port);
  };
  std::string text = at(host);
  for (const std::string& rail : rails) text += separator + at(rail);
  return text;
}

std::string_view rail_of(std::string_view text, int stream, std::size_t most) {
  const auto there = 1 + static_cast<std::size_t>(std::ranges::count(text, separator));
  const std::size_t count = std::clamp<std::size_t>(most, 1, there);
  for (std::size_t left = static_cast<std::size_t>(stream) % count; left > 0; --left) {
    text.remove_prefix(text.find(separator) + 1);
  }
  return text.substr(0, text.find(separator));
}

std::string_view host_of(std::string_view text) {
  const std::string_view address = rail_of(text, 0, 1);
  return address.substr(0, std::min(address.size(), address.rfind(':')));
}

}  // namespace pith
