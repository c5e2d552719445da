#include "settings/verbs_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <iterator>
#include <string_view>
#include <vector>

namespace pith {
namespace {

struct Key {
  std::string_view name;
  int VerbsSettings::*value;
  int least;
  int most;
};

constexpr std::array keys{
    Key{"gid", &VerbsSettings::gid, 0, 255},
    Key{"pkey", &VerbsSettings::pkey, 0, 65535},
    Key{"level", &VerbsSettings::level, 0, 15},
    Key{"class", &VerbsSettings::traffic_class, 0, 255},
    Key{"mtu", &VerbsSettings::mtu, 256, 4096},
    Key{"timeout", &VerbsSettings::timeout, 1, 31},
    Key{"retries", &VerbsSettings::retries, 0, 7},
};

template <class Integer>
bool read(std::string_view text, Integer& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size();
}

Error refused(const std::string& text, std::string_view what) {
  return {Code::invalid_argument, fmt::format("PITH_VERBS is \"{}\": {}", text, what)};
}

Error set(VerbsSettings& settings, const std::string& text, std::string_view key,
          std::string_view value) {
  if (key == "devices") {
    if (value.empty()) return refused(text, "devices= takes name:port+name, or ^name");
    settings.devices = value;
    std::ranges::replace(settings.devices, '+', ',');
    return {};
  }
  if (key == "cache") {
    return read(value, settings.cache) ? Error() : refused(text, "cache= takes a number of bytes");
  }
  const auto found = std::ranges::find(keys, key, &Key::name);
  if (found == keys.end()) {
    std::vector<std::string_view> names{"devices", "cache"};
    std::ranges::transform(keys, std::back_inserter(names), &Key::name);
    return refused(
        text, fmt::format("\"{}\" is not key=value with a key of {}; between devices there is a +",
                          key, fmt::join(names, ", ")));
  }
  int number = 0;
  if (!read(value, number) || number < found->least || number > found->most) {
    return refused(text, fmt::format("{}= takes a whole number from {} to {}", key, found->least,
                                     found->most));
  }
  if (key == "mtu" && !std::has_single_bit(static_cast<unsigned>(number))) {
    return refused(text, "mtu= takes 256, 512, 1024, 2048 or 4096");
  }
  settings.*found->value = number;
  return {};
}

}  // namespace

std::string VerbsSettings::text() const {
  const VerbsSettings defaults;
  std::vector<std::string> parts;
  if (!devices.empty()) {
    std::string list = devices;
    std::ranges::replace(list, ',', '+');
    parts.push_back("devices=" + list);
  }
  for (const Key& key : keys) {
    if (this->*key.value != defaults.*key.value) {
      parts.push_back(fmt::format("{}={}", key.name, this->*key.value));
    }
  }
  if (cache != defaults.cache) parts.push_back(fmt::format("cache={}", cache));
  return fmt::format("{}", fmt::join(parts, ","));
}

Expected<VerbsSettings> parse_verbs_settings(const std::string& text) {
  VerbsSettings settings;
  std::vector<std::string_view> known;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    const std::string_view key = part.substr(0, equals);
    if (Error error = set(settings, text, key, value)) return error;
    if (std::ranges::find(known, key) != known.end()) {
      return refused(text, fmt::format("{}= comes twice", key));
    }
    known.push_back(key);
  }
  return settings;
}

}  // namespace pith
