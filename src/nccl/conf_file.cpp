#include "nccl/conf_file.hpp"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string>

namespace pith::nccl {

namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The user's home directory from the password file, as in NCCL; HOME is ignored.
std::string home() {
  std::array<char, 4096> room{};
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, room.data(), room.size(), &found) != 0 || !found) return {};
  return found->pw_dir ? found->pw_dir : "";
}

std::string users_file() {
  static constexpr std::array<std::string_view, 1> name = {"NCCL_CONF_FILE"};
  const Variables named = variables_from_environment(name);
  if (!named.empty()) return named.begin()->second;
  const std::string folder = home();
  return folder.empty() ? folder : folder + "/.nccl.conf";
}

}  // namespace

Variables variables_of(std::string_view text) {
  Variables found;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || line.starts_with('#')) continue;
    found.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return found;
}

Variables variables_from_files() {
  Variables found;
  const std::string own = users_file();
  if (!own.empty()) found = variables_of(text_of(own));
  found.merge(variables_of(text_of("/etc/nccl.conf")));
  return found;
}

Variables variables_named(std::span<const std::string_view> names, const Variables& from_files) {
  Variables found = variables_from_environment(names);
  for (const std::string_view name : names) {
    const auto in_file = from_files.find(name);
    if (in_file != from_files.end() && !in_file->second.empty()) {
      found.emplace(name, in_file->second);
    }
  }
  return found;
}

}  // namespace pith::nccl
