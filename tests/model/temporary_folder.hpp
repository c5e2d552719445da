// A folder of a test's own, with one file that what is tested writes.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/catch.hpp"

namespace pith::test {

class TemporaryFolder {
 public:
  TemporaryFolder() { REQUIRE(mkdtemp(name_) != nullptr); }
  ~TemporaryFolder() { std::filesystem::remove_all(name_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path() const { return std::string(name_) + "/file"; }
  // Empty: no such file. Removes it.
  std::string take() const {
    std::ifstream file(path());
    std::ostringstream text;
    if (file) text << file.rdbuf();
    std::filesystem::remove(path());
    return text.str();
  }
  bool is_empty() const { return std::filesystem::is_empty(name_); }

 private:
  char name_[32] = "/tmp/pith_model_XXXXXX";
};

}  // namespace pith::test
