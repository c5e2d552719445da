// Parts of a vector in any order, and what is left of it.
#include "compress/added_ranges.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tests/catch.hpp"

namespace pith::test {

TEST_CASE("what is left of a vector is found, part by part") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t parts = 1 + random() % 12;
    std::vector<std::size_t> sizes(parts);
    for (std::size_t& size : sizes) size = random() % 4;  // also none
    const std::size_t count = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    std::vector<std::size_t> order(parts);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<bool> added(count);
    AddedRanges ranges;
    const std::size_t most = random() % (parts + 1);
    for (std::size_t i = 0; i < most; ++i) {
      const auto first = sizes.begin();
      const auto end = first + static_cast<std::ptrdiff_t>(order[i]);
      const std::size_t begin = std::accumulate(first, end, std::size_t{0});
      ranges.add(begin, sizes[order[i]]);
      std::fill_n(added.begin() + static_cast<std::ptrdiff_t>(begin), sizes[order[i]], true);
    }
    std::size_t at = 0;
    for (AddedRanges::Part gap = ranges.first_gap(count); gap.count > 0;
         gap = ranges.first_gap(count)) {
      CHECK(gap.begin >= at);
      for (; at < gap.begin; ++at) CHECK(added[at]);
      for (; at < gap.begin + gap.count; ++at) CHECK_FALSE(added[at]);
      ranges.add(gap.begin, gap.count);
    }
    for (; at < count; ++at) CHECK(added[at]);
    ranges.clear();
    CHECK(ranges.first_gap(count).count == count);
  }
}

}  // namespace pith::test
