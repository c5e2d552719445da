// How much a test may do: a sanitizer watches, beside which everything takes several times as long,
// or the long tests are wanted.
#pragma once

#include <cstdlib>

namespace pith::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// As PITH_TEST_FULL=1 and `./pith test --full` say.
inline const bool full = std::getenv("PITH_TEST_FULL") != nullptr;

}  // namespace pith::test
