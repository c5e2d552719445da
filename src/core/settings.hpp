// The one table of settings. Read once from the environment as PITH_<NAME>; nothing else in the
// library reads the environment.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace pith {

struct Settings {
  std::string algo;       // "allreduce:ring,broadcast:chain"; empty: the library chooses
  std::string transport;  // comma list of shm, tcp, local; empty: the best that works
  std::size_t chunk = 0;  // 0: by transport
  int lanes = 4;
  int streams = 4;
  std::string host = "127.0.0.1";
  double init_timeout = 120;
  std::string log = "warn";
};

// How one setting is documented and compared. Settings of scope `agreed` must be equal on all
// ranks, for the choice of algorithms depends on them.
struct SettingInfo {
  enum class Scope { agreed, local };
  std::string_view name;
  Scope scope;
  std::string_view meaning;
  std::string (*value)(const Settings&);
  // Null error: taken. Else what is wrong with the text.
  Error (*set)(Settings&, const std::string& text);
};

std::span<const SettingInfo> setting_table();
// What PITH_TRANSPORT knows.
std::span<const std::string_view> transport_names();

// From the environment, anew at every call: communicators read them when they are created.
Expected<Settings> settings_from_environment();

// "name=value" lines of the agreed settings, and what differs between two such texts: empty, or
// "PITH_CHUNK is 65536 there and 4096 here".
std::string agreed_text(const Settings& settings);
std::string difference(std::string_view theirs, std::string_view ours);

}  // namespace pith
