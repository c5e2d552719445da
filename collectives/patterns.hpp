// Rank arithmetic shared by the algorithms: pure functions, tested by enumeration.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

namespace pith {

// (a mod n) for a in [-n, 2n).
constexpr int wrap(int a, int n) { return a < 0 ? a + n : (a >= n ? a - n : a); }

struct Range {
  std::size_t begin = 0;
  std::size_t size = 0;
};

// `count` elements cut into nearly equal blocks; the first ones have one element more. Divides only
// once, since algorithms ask for blocks in every step.
class Blocks {
 public:
  constexpr Blocks(std::size_t count, int blocks)
      : base_(count / static_cast<std::size_t>(blocks)),
        extra_(count % static_cast<std::size_t>(blocks)) {}
  constexpr Range operator[](int b) const {
    const auto i = static_cast<std::size_t>(b);
    return {i * base_ + std::min(i, extra_), base_ + (i < extra_ ? 1 : 0)};
  }

 private:
  std::size_t base_;
  std::size_t extra_;
};

constexpr Range block(std::size_t count, int blocks, int b) { return Blocks(count, blocks)[b]; }

// Chunk k of a range that is cut into chunks of at most `chunk` elements; empty past the end.
constexpr Range chunk_of(Range range, std::size_t chunk, std::size_t k) {
  const std::size_t begin = std::min(k * chunk, range.size);
  return {range.begin + begin, std::min(chunk, range.size - begin)};
}

// Removes the first `most` elements of a range, or all if it has fewer, and returns them.
constexpr Range take_front(Range& range, std::size_t most) {
  const Range front{range.begin, std::min(range.size, most)};
  range = {range.begin + front.size, range.size - front.size};
  return front;
}

constexpr std::size_t chunks_in(std::size_t size, std::size_t chunk) {
  return (size + chunk - 1) / chunk;
}

constexpr int floor_power_of_two(int n) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
}

constexpr int ceil_log2(int n) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(n) - 1));
}

// Binomial tree over 0, 1, ... with root 0: the bit that distinguishes a rank from its parent; for
// the root the least power of two that is not below `ranks`. The subtree of rank r is r, ..., r +
// bit - 1, as far as these exist.
constexpr int binomial_bit(int rank, int ranks) {
  return rank == 0 ? 1 << ceil_log2(ranks) : rank & -rank;
}
constexpr int binomial_subtree(int rank, int ranks) {
  return std::min(binomial_bit(rank, ranks), ranks - rank);
}

// A rank's place in a tree; -1 where there is none.
struct TreeNode {
  int parent = -1;
  std::array<int, 2> children{-1, -1};
};

// The binary tree with root 0 in pre-order: the ranks of a subtree follow each other, its root
// first, then its left half, then its right half. Its height is the least possible.
constexpr TreeNode pre_order_tree(int rank, int ranks) {
  TreeNode node;
  int first = 0;
  int size = ranks;
  while (first != rank) {
    const int left = size / 2;
    const bool goes_right = rank > first + left;
    node.parent = first;
    first += goes_right ? 1 + left : 1;
    size = goes_right ? size - 1 - left : left;
  }
  if (size > 1) node.children[0] = first + 1;
  if (size > 2) node.children[1] = first + 1 + size / 2;
  return node;
}

// The same with another root: ranks count from it on.
constexpr TreeNode pre_order_tree(int rank, int root, int ranks) {
  TreeNode node = pre_order_tree(wrap(rank - root, ranks), ranks);
  for (int* other : {&node.parent, &node.children[0], &node.children[1]}) {
    if (*other >= 0) *other = wrap(*other + root, ranks);
  }
  return node;
}

// The binary tree in in-order: its ranks are 1, 2, ... from left to right, below the root 0, which
// has one child. Odd ranks are leaves. The subtree of an inner rank extends equally far to both
// sides.
constexpr TreeNode in_order_tree(int rank, int ranks) {
  if (rank == 0) return {-1, {ranks > 1 ? floor_power_of_two(ranks - 1) : -1, -1}};
  const int bit = rank & -rank;
  const int up = (rank ^ bit) | (bit << 1);
  TreeNode node{up < ranks ? up : rank ^ bit, {bit > 1 ? rank - bit / 2 : -1, -1}};
  for (int step = bit / 2; step > 0 && node.children[1] < 0; step /= 2) {
    if (rank + step < ranks) node.children[1] = rank + step;
  }
  return node;
}

// in_order_tree with its ranks in reverse order, or shifted by one if their number is odd, so that
// leaves and inner ranks change roles.
constexpr TreeNode turned_tree(int rank, int ranks) {
  const bool even = ranks % 2 == 0;
  const auto turned = [=](int r) { return even ? ranks - 1 - r : wrap(r + 1, ranks); };
  const auto back = [=](int r) { return even ? ranks - 1 - r : wrap(r - 1, ranks); };
  TreeNode node = in_order_tree(turned(rank), ranks);
  for (int* other : {&node.parent, &node.children[0], &node.children[1]}) {
    if (*other >= 0) *other = back(*other);
  }
  return node;
}

}  // namespace pith
