#include "core/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace pith {

namespace {

using Scope = SettingInfo::Scope;

Error bad_value(std::string_view name, const std::string& text, std::string_view expected) {
  return {Code::invalid_argument,
          fmt::format("PITH_{} is \"{}\", expected {}", name, text, expected)};
}

Error set_number(std::string_view name, const std::string& text, double least, double most,
                 double& out) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() ||
      !(value >= least && value <= most)) {  // so that NaN is refused
    return bad_value(name, text, fmt::format("a number from {} to {}", least, most));
  }
  out = value;
  return {};
}

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

constexpr std::array<std::string_view, 3> transports = {"shm", "tcp", "local"};

Error set_transport(const std::string& text, Settings& settings) {
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    if (std::find(transports.begin(), transports.end(), name) == transports.end()) {
      return bad_value("TRANSPORT", text,
                       fmt::format("a comma list of {}", fmt::join(transports, ", ")));
    }
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  settings.transport = text;
  return {};
}

constexpr std::array table{
    SettingInfo{"ALGO", Scope::agreed, "algorithms to use, as collective:name[,...]",
                [](const Settings& s) { return s.algo; },
                [](Settings& s, const std::string& text) {
                  s.algo = text;
                  return Error();
                }},
    SettingInfo{"TRANSPORT", Scope::agreed, "transports to use, of shm, tcp, local; in any order",
                [](const Settings& s) { return s.transport; },
                [](Settings& s, const std::string& text) { return set_transport(text, s); }},
    SettingInfo{"CHUNK", Scope::agreed, "bytes of a chunk in pipelined algorithms; 0: by transport",
                [](const Settings& s) { return std::to_string(s.chunk); },
                [](Settings& s, const std::string& text) {
                  return set_integer<std::size_t>("CHUNK", text, 0, std::size_t{1} << 30, s.chunk);
                }},
    SettingInfo{"LANES", Scope::agreed, "chunks of one sequence in flight",
                [](const Settings& s) { return std::to_string(s.lanes); },
                [](Settings& s, const std::string& text) {
                  return set_integer("LANES", text, 1, 8, s.lanes);
                }},
    SettingInfo{"STREAMS", Scope::agreed, "TCP connections between two ranks",
                [](const Settings& s) { return std::to_string(s.streams); },
                [](Settings& s, const std::string& text) {
                  return set_integer("STREAMS", text, 1, 16, s.streams);
                }},
    SettingInfo{"HOST", Scope::local, "address by which other ranks reach this process",
                [](const Settings& s) { return s.host; },
                [](Settings& s, const std::string& text) {
                  s.host = text;
                  return Error();
                }},
    SettingInfo{"INIT_TIMEOUT", Scope::local, "seconds to wait for all ranks at start-up",
                [](const Settings& s) { return fmt::format("{}", s.init_timeout); },
                [](Settings& s, const std::string& text) {
                  return set_number("INIT_TIMEOUT", text, 0.1, 86400, s.init_timeout);
                }},
    SettingInfo{"LOG", Scope::local, "error, warn, info or debug; to standard error",
                [](const Settings& s) { return s.log; },
                [](Settings& s, const std::string& text) {
                  for (const char* known : {"error", "warn", "info", "debug"}) {
                    if (text == known) {
                      s.log = text;
                      return Error();
                    }
                  }
                  return bad_value("LOG", text, "error, warn, info or debug");
                }},
};

// The line that begins at the front of `text`, which it takes off.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

}  // namespace

std::span<const SettingInfo> setting_table() { return table; }

std::span<const std::string_view> transport_names() { return transports; }

Expected<Settings> settings_from_environment() {
  Settings settings;
  for (const SettingInfo& info : table) {
    const char* text = std::getenv(fmt::format("PITH_{}", info.name).c_str());
    if (!text || !*text) continue;
    if (Error error = info.set(settings, text)) return error;
  }
  return settings;
}

std::string agreed_text(const Settings& settings) {
  std::string text;
  for (const SettingInfo& info : table) {
    if (info.scope == Scope::agreed)
      text += fmt::format("{}={}\n", info.name, info.value(settings));
  }
  return text;
}

std::string difference(std::string_view theirs, std::string_view ours) {
  while (!theirs.empty() || !ours.empty()) {
    const std::string_view their_line = next_line(theirs);
    const std::string_view our_line = next_line(ours);
    if (their_line == our_line) continue;
    return fmt::format("PITH_{} there, PITH_{} here", their_line, our_line);
  }
  return {};
}

}  // namespace pith
