// Whole files, for the tools.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <sstream>
#include <string>

#include "core/error.hpp"

namespace pith_tools {

inline pith::Expected<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return pith::Error(pith::Code::system, fmt::format("{} cannot be read, or is empty", path));
  }
  return text.str();
}

// False: it cannot be written. The caller knows which flag named it.
inline bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  return static_cast<bool>(file.flush());
}

}  // namespace pith_tools
