// How the text of a setting becomes its value. An error names the variable, its text and what was
// expected.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "settings/settings.hpp"

namespace pith {

Error bad_value(std::string_view name, const std::string& text, std::string_view expected);
Error set_number(std::string_view name, const std::string& text, double least, double most,
                 double& out);
template <class Integer>
Error set_integer(std::string_view name, const std::string& text, Integer least, Integer most,
                  Integer& out) {
  Integer value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return bad_value(name, text, fmt::format("a whole number from {} to {}", least, most));
  }
  out = value;
  return {};
}

Error set_flag(std::string_view name, const std::string& text, bool& out);
Error set_transport(const std::string& text, Settings& settings);
Error set_host(const std::string& text, Settings& settings);
Error set_ifname(const std::string& text, Settings& settings);
Error set_port_range(const std::string& text, Settings& settings);
Error set_root(const std::string& text, Settings& settings);

}  // namespace pith
