// Tests that go through many cases: the line that a failing one prints runs it again, alone.
//
//   const std::string name = describe(c);
//   if (!is_wanted(name)) continue;
//   ... if (!failure.empty()) print_again(this_program() + " 'every root'", name);
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace pith::test {

inline bool is_alone() { return std::getenv("PITH_TEST_CASE") != nullptr; }

inline bool is_wanted(const std::string& name) {
  const char* only = std::getenv("PITH_TEST_CASE");
  return !only || name == only;
}

// From where it was built. The same tests may be linked into several.
inline std::string this_program() {
  return std::string("build/bin/") + program_invocation_short_name;
}

// `command`: what runs the test with all its cases. Names have no quotes in them. Not through
// Catch, which breaks long lines.
inline void print_again(const std::string& command, const std::string& name) {
  std::fprintf(stderr, "again: PITH_TEST_CASE='%s' %s\n", name.c_str(), command.c_str());
}

}  // namespace pith::test
