// Where settings come from: what changed them, and variables that look like settings and are none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "settings/settings.hpp"

namespace pith {

// "environment", "library" (one built from this one gave it, as libnccl.so.2 does) or "default".
std::string_view origin_of(std::string_view setting);

// The variable by which a user said it: PITH_<setting>, or where a library gave it, what that says
// in "FROM_<setting>" of its defaults.
std::string variable_of(std::string_view setting);

// Of what set_defaults was given: values whose names begin with this and are of other libraries,
// without it. They count where the environment does not have the whole name.
Variables defaults_of_library(std::string_view prefix);

// What is not as it is by itself: "PITH_LANES=2 (environment)". Secrets are veiled.
std::vector<std::string> changed_settings(const Settings& settings);

// One line for each variable of the environment that begins with PITH_ and names no setting, with
// the name that was probably meant. The library's tests and tools have variables of their own,
// which are left out.
std::vector<std::string> unknown_variables();

// The setting whose name is nearest to `name`, without PITH_; empty: none is near.
std::string_view nearest_setting(std::string_view name);

}  // namespace pith
