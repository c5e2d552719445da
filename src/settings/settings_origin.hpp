// Where settings come from, and environment variables that look like settings and are none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "settings/settings.hpp"

namespace pith {

// "environment", "library" (set by one built on this one, as libnccl.so.2) or "default".
std::string_view origin_of(std::string_view setting);

// The variable by which the user set it: PITH_<setting>, or where a library set it, the value of
// "FROM_<setting>" among its defaults.
std::string variable_of(std::string_view setting);

// Those values given to set_defaults whose names begin with `prefix`, without it. They are for
// other libraries, and count only where the environment does not set the full name.
Variables defaults_of_library(std::string_view prefix);

// Settings that differ from their defaults: "PITH_LANES=2 (environment)". Secrets are masked.
std::vector<std::string> changed_settings(const Settings& settings);

// One line for each environment variable that begins with PITH_ and names no setting, with the name
// that was probably meant. Leaves out variables of the library's tests and tools.
std::vector<std::string> unknown_variables();

// The setting whose name is nearest to `name`, without PITH_; empty: none is near.
std::string_view nearest_setting(std::string_view name);

}  // namespace pith
