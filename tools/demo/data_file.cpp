#include "tools/demo/data_file.hpp"

#include <filesystem>
#include <system_error>

namespace pith::demo {

std::string data_file() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return PITH_DEMO_DATA;
  const std::filesystem::path installed = program.parent_path() / PITH_DEMO_INSTALLED_DATA;
  return std::filesystem::exists(installed, error) ? installed.lexically_normal().string()
                                                   : PITH_DEMO_DATA;
}

}  // namespace pith::demo
