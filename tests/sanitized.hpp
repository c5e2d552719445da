// How much a test may do: a sanitizer watches, beside which everything takes several times as long,
// or the long tests are wanted.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <numeric>

namespace pith::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// As PITH_TEST_FULL=1 and `./pith test --full` say.
inline const bool full = std::getenv("PITH_TEST_FULL") != nullptr;

// Every day half of all combinations, with PITH_TEST_FULL=1 all of them. `values`: which value each
// setting has, counted from 0. Of three settings and more any two values still meet.
inline bool is_due(std::initializer_list<int> values) {
  return full || std::accumulate(values.begin(), values.end(), 0) % 2 == 0;
}

// Every day one of `n`, by turns, with PITH_TEST_FULL=1 all of them.
inline bool is_turn(int turn, int i, int n) { return full || turn % n == i; }

}  // namespace pith::test
