// Stories that follow from a seed, told for many of them: one that fails prints how to run it
// alone.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/catch.hpp"

namespace pith::test {

struct Seeds {
  std::uint64_t first = 1;
  std::uint64_t daily = 0;  // how many
  std::uint64_t full = 0;   // with PITH_TEST_FULL=1
};

// PITH_TEST_SEEDS=n tries n of them, PITH_TEST_SEED=s that one alone.
inline Seeds chosen(const Seeds& seeds) {
  const char* one = std::getenv("PITH_TEST_SEED");
  const char* many = std::getenv("PITH_TEST_SEEDS");
  const auto number = [](const char* text) { return std::strtoull(text, nullptr, 10); };
  if (one) return {number(one), 1, 1};
  if (many) return {seeds.first, number(many), number(many)};
  return seeds;
}

// Ends after ten failures. `story(seed)`: empty, or what went wrong. `how`: program and test case,
// as a shell runs them. How many seeds were to be tried.
template <class Story>
std::uint64_t try_seeds(const Seeds& usual, const std::string& how, Story story) {
  const Seeds seeds = chosen(usual);
  const std::uint64_t count = std::getenv("PITH_TEST_FULL") ? seeds.full : seeds.daily;
  int failed = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + count && failed < 10; ++seed) {
    const std::string wrong = story(seed);
    if (wrong.empty()) continue;
    ++failed;
    FAIL_CHECK(wrong << "\nagain: PITH_TEST_SEED=" << seed << " build/bin/" << how);
  }
  SUCCEED();
  return count;
}

}  // namespace pith::test
