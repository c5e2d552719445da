// Combinations of settings: all of them, or few in which every two values of any two settings
// still meet.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "tests/sanitized.hpp"

namespace pith::test {

// One value of each setting, counted from 0.
using Combination = std::vector<int>;

namespace detail {

using Pair = std::tuple<std::size_t, int, std::size_t, int>;

inline Pair make_pair_of(std::size_t a, int of_a, std::size_t b, int of_b) {
  return a < b ? Pair{a, of_a, b, of_b} : Pair{b, of_b, a, of_a};
}

// How many pairs still to be covered this value makes with the values chosen already.
inline int gain(const std::set<Pair>& left, const Combination& chosen, std::size_t at, int value) {
  int pairs = 0;
  for (std::size_t other = 0; other < chosen.size(); ++other) {
    if (other == at || chosen[other] < 0) continue;
    pairs += left.contains(make_pair_of(at, value, other, chosen[other])) ? 1 : 0;
  }
  return pairs;
}

}  // namespace detail

// `sizes`: how many values each setting has. Greedy: each combination begins with a pair that was
// not covered yet, and takes what covers most for every other setting.
inline std::vector<Combination> pairwise(std::span<const int> sizes) {
  std::set<detail::Pair> left;
  for (std::size_t a = 0; a < sizes.size(); ++a) {
    for (std::size_t b = a + 1; b < sizes.size(); ++b) {
      for (int i = 0; i < sizes[a] * sizes[b]; ++i) left.emplace(a, i / sizes[b], b, i % sizes[b]);
    }
  }
  std::vector<Combination> all;
  while (!left.empty()) {
    Combination chosen(sizes.size(), -1);
    const auto [a, of_a, b, of_b] = *left.begin();
    chosen[a] = of_a;
    chosen[b] = of_b;
    for (std::size_t at = 0; at < sizes.size(); ++at) {
      if (chosen[at] >= 0) continue;
      const int start = static_cast<int>(all.size()) % sizes[at];  // ties go round
      int best = start;
      for (int i = 1; i < sizes[at]; ++i) {
        const int value = (start + i) % sizes[at];
        if (detail::gain(left, chosen, at, value) > detail::gain(left, chosen, at, best)) {
          best = value;
        }
      }
      chosen[at] = best;
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      for (std::size_t k = i + 1; k < sizes.size(); ++k) left.erase({i, chosen[i], k, chosen[k]});
    }
    all.push_back(std::move(chosen));
  }
  return all;
}

inline std::vector<Combination> every(std::span<const int> sizes) {
  std::vector<Combination> all{Combination()};
  for (const int size : sizes) {
    std::vector<Combination> longer;
    for (const Combination& so_far : all) {
      for (int value = 0; value < size; ++value) {
        longer.push_back(so_far);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// With PITH_TEST_FULL=1 all of them. Sanitizers look at memory and threads, for which pairs do.
inline bool wants_every_combination() { return !sanitized && std::getenv("PITH_TEST_FULL"); }

inline std::vector<Combination> combinations(std::span<const int> sizes) {
  return wants_every_combination() ? every(sizes) : pairwise(sizes);
}

}  // namespace pith::test
