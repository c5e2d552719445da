// What the tools print for --version.
#pragma once

#include <fmt/format.h>
#include <pith/pith.h>

#include <string>
#include <string_view>

namespace pith_tools {

// As "pith-info 0.1.0": of the header it was built with. The form is the one GNU's programs have.
inline std::string version_of(std::string_view program) {
  return fmt::format("{} {}.{}.{}", program, PITH_MAJOR, PITH_MINOR, PITH_PATCH);
}

}  // namespace pith_tools
