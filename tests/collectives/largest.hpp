// Which elements an election takes by its definition: those of largest magnitude, and of equal ones
// the first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

namespace pith::test {

inline constexpr float never_elected = -1;

// Their indices, in order.
inline std::vector<std::size_t> largest(const std::vector<float>& magnitudes, std::size_t k) {
  std::vector<float> all = magnitudes;
  std::erase(all, never_elected);
  k = std::min(k, all.size());
  if (k == 0) return {};
  const auto last = all.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(all.begin(), last, all.end(), std::greater<>());
  const float least = *last;
  auto equal = k - static_cast<std::size_t>(
                       std::count_if(all.begin(), last, [&](float one) { return one > least; }));
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < magnitudes.size(); ++i) {
    if (magnitudes[i] > least || (magnitudes[i] == least && equal > 0)) {
      equal -= magnitudes[i] == least ? 1 : 0;
      found.push_back(i);
    }
  }
  return found;
}

}  // namespace pith::test
