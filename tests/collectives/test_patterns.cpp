// Rank and block arithmetic, by enumeration.
#include <vector>

#include "collectives/patterns.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

// How often each of `count` elements is in one of the ranges; all of it must be once.
bool cover_once(std::size_t count, const std::vector<Range>& ranges) {
  std::vector<int> times(count);
  for (const Range& range : ranges) {
    for (std::size_t i = range.begin; i < range.begin + range.size; ++i) {
      if (i >= count || ++times[i] != 1) return false;
    }
  }
  return std::ranges::all_of(times, [](int n) { return n == 1; });
}

}  // namespace

TEST_CASE("blocks of huge vectors do not overflow", "[patterns]") {
  constexpr std::size_t count = (std::size_t{1} << 60) + 12345;
  for (const int blocks : {1, 2, 3, 1000, 4096}) {
    std::size_t end = 0;
    for (int b = 0; b < blocks; ++b) {
      REQUIRE(block(count, blocks, b).begin == end);
      end += block(count, blocks, b).size;
    }
    REQUIRE(end == count);
  }
}

TEST_CASE("chunks cover their range once; those behind it are empty", "[patterns]") {
  for (std::size_t size = 0; size <= 70; ++size) {
    for (std::size_t chunk = 1; chunk <= 20; ++chunk) {
      const Range range{7, size};
      const std::size_t chunks = chunks_in(size, chunk);
      REQUIRE(chunks * chunk >= size);
      REQUIRE((chunks == 0 || (chunks - 1) * chunk < size));
      std::vector<Range> all{{0, 7}};
      for (std::size_t k = 0; k < chunks; ++k) {
        all.push_back(chunk_of(range, chunk, k));
        REQUIRE(all.back().size <= chunk);
        REQUIRE(all.back().size > 0);
        if (k + 1 < chunks) REQUIRE(all.back().size == chunk);
      }
      REQUIRE(cover_once(7 + size, all));
      for (std::size_t k = chunks; k < chunks + 3; ++k) {
        REQUIRE(chunk_of(range, chunk, k).size == 0);
        REQUIRE(chunk_of(range, chunk, k).begin == 7 + size);
      }
    }
  }
}

namespace {

int children_of(const TreeNode& node) {
  return (node.children[0] >= 0 ? 1 : 0) + (node.children[1] >= 0 ? 1 : 0);
}

}  // namespace

TEST_CASE("inner ranks of one of the two trees are leaves of the other", "[patterns]") {
  for (int ranks = 2; ranks <= 130; ++ranks) {
    int busy = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const int children =
          children_of(in_order_tree(rank, ranks)) + children_of(turned_tree(rank, ranks));
      REQUIRE(children <= 3);
      busy += children > 2 ? 1 : 0;
    }
    REQUIRE(busy <= ranks % 2);
  }
}

}  // namespace pith::test
