#include "model/replaced_file.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>

namespace pith {

// Through a file beside it, which the disk may have no room for. Another process may have the same
// path: then the last one to write is seen.
Error replace_file(const std::string& path, const std::string& text) {
  const std::string part = fmt::format("{}.part.{}", path, getpid());
  std::ofstream file(part, std::ios::trunc);
  file << text;
  file.close();
  if (file && std::rename(part.c_str(), path.c_str()) == 0) return {};
  return system_error(path, errno);
}

}  // namespace pith
