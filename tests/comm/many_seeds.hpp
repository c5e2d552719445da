// Stories that follow from a seed, told for many of them: one that fails prints how to run it
// alone.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "catch.hpp"

namespace pith::test {

// From 1 to `daily`, with PITH_TEST_FULL=1 to `full`, or PITH_TEST_SEED alone; ends after ten
// failures. `story(seed)`: empty, or what went wrong. `name`: what selects the test case.
template <class Story>
void try_seeds(std::uint64_t daily, std::uint64_t full, const std::string& name, Story story) {
  std::uint64_t first = 1;
  std::uint64_t count = std::getenv("PITH_TEST_FULL") ? full : daily;
  if (const char* one = std::getenv("PITH_TEST_SEED")) {
    first = std::strtoull(one, nullptr, 10);
    count = 1;
  }
  int failed = 0;
  for (std::uint64_t seed = first; seed < first + count && failed < 10; ++seed) {
    const std::string wrong = story(seed);
    if (wrong.empty()) continue;
    ++failed;
    FAIL_CHECK(wrong << "\nagain: PITH_TEST_SEED=" << seed << " test_control \"" << name << "\"");
  }
  SUCCEED();
}

}  // namespace pith::test
