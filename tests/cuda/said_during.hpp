// What is written to standard error meanwhile.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "catch.hpp"

namespace pith::cuda::test {

template <class Work>
std::string said_during(const Work& work) {
  const int file = memfd_create("stderr", 0);
  const int before = dup(STDERR_FILENO);
  dup2(file, STDERR_FILENO);
  work();
  dup2(before, STDERR_FILENO);
  std::string text(static_cast<std::size_t>(lseek(file, 0, SEEK_END)), '\0');
  CHECK(pread(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  close(file);
  close(before);
  return text;
}

}  // namespace pith::cuda::test
