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

TEST_CASE("wrap is the remainder that is not negative", "[patterns]") {
  for (int n = 1; n <= 33; ++n) {
    for (int a = -n; a < 2 * n; ++a) {
      const int wrapped = wrap(a, n);
      REQUIRE(wrapped >= 0);
      REQUIRE(wrapped < n);
      REQUIRE((a - wrapped) % n == 0);
    }
  }
}

TEST_CASE("blocks cover everything once, in order, and are nearly equal", "[patterns]") {
  for (int blocks = 1; blocks <= 20; ++blocks) {
    for (std::size_t count = 0; count <= 100; ++count) {
      std::vector<Range> all;
      for (int b = 0; b < blocks; ++b) all.push_back(block(count, blocks, b));
      REQUIRE(cover_once(count, all));
      for (std::size_t b = 0; b < all.size(); ++b) {
        REQUIRE(all[b].size + 1 >= all[0].size);
        REQUIRE(all[b].size <= all[0].size);
        if (b > 0) REQUIRE(all[b].begin == all[b - 1].begin + all[b - 1].size);
        if (b > 0) REQUIRE(all[b].size <= all[b - 1].size);
      }
    }
  }
}

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

TEST_CASE("every block has its chunks within those of the first block", "[patterns]") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    for (std::size_t count = 0; count <= 120; ++count) {
      for (const std::size_t chunk : {1, 2, 7, 8}) {
        const std::size_t most = chunks_in(block(count, ranks, 0).size, chunk);
        std::vector<Range> all;
        for (int b = 0; b < ranks; ++b) {
          for (std::size_t k = 0; k < most; ++k) {
            all.push_back(chunk_of(block(count, ranks, b), chunk, k));
          }
        }
        REQUIRE(cover_once(count, all));
      }
    }
  }
}

TEST_CASE("powers of two", "[patterns]") {
  for (int n = 1; n <= 5000; ++n) {
    const int q = floor_power_of_two(n);
    REQUIRE((q & (q - 1)) == 0);
    REQUIRE(q <= n);
    REQUIRE(2 * q > n);
    const int log = ceil_log2(n);
    REQUIRE((1 << log) >= n);
    REQUIRE((n == 1 ? log == 0 : (1 << (log - 1)) < n));
  }
}

namespace {

int children_of(const TreeNode& node) {
  return (node.children[0] >= 0 ? 1 : 0) + (node.children[1] >= 0 ? 1 : 0);
}

// One root, everybody else a child of its parent, nobody further from the root than `height`.
void check_tree(TreeNode (*tree)(int, int), int ranks, int height) {
  int roots = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const TreeNode node = tree(rank, ranks);
    roots += node.parent < 0 ? 1 : 0;
    REQUIRE((node.children[0] >= 0 || node.children[1] < 0));
    for (const int child : node.children) {
      if (child >= 0) REQUIRE(tree(child, ranks).parent == rank);
    }
    int steps = 0;
    for (int at = rank; tree(at, ranks).parent >= 0; at = tree(at, ranks).parent) {
      const TreeNode parent = tree(tree(at, ranks).parent, ranks);
      REQUIRE((parent.children[0] == at || parent.children[1] == at));
      REQUIRE(++steps <= height);
    }
  }
  REQUIRE(roots == 1);
}

}  // namespace

TEST_CASE("trees reach everybody in few steps", "[patterns]") {
  for (int ranks = 1; ranks <= 130; ++ranks) {
    check_tree(pre_order_tree, ranks, ceil_log2(ranks + 1));
    check_tree(in_order_tree, ranks, ceil_log2(ranks) + 1);
    check_tree(turned_tree, ranks, ceil_log2(ranks) + 1);
  }
}

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

TEST_CASE("binomial subtrees cover what follows their root", "[patterns]") {
  for (int ranks = 1; ranks <= 70; ++ranks) {
    REQUIRE(binomial_subtree(0, ranks) == ranks);
    for (int rank = 1; rank < ranks; ++rank) {
      int held = 1;
      for (int child = 1; child < binomial_bit(rank, ranks) && rank + child < ranks; child *= 2) {
        REQUIRE(binomial_bit(rank + child, ranks) == child);
        held += binomial_subtree(rank + child, ranks);
      }
      REQUIRE(binomial_subtree(rank, ranks) == held);
    }
  }
}

}  // namespace pith::test
