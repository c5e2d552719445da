// The parts of Catch2 that the tests use, from version 2 (one header) or 3 (many). A test uses its
// macros, Approx and ContainsSubstring, which are the same with both; what else is in `Catch::` may
// differ, so tests/tidy forbids it.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using Catch::Approx;  // version 2 has it in the global namespace by itself
using Catch::Matchers::ContainsSubstring;
#else
#include <catch2/catch.hpp>

#include <string>

inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
#endif
