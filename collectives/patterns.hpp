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

// `count` elements cut into nearly equal blocks; the first ones get one more. Divides once, for an
// algorithm asks for blocks at every step.
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

// Chunk k of a range cut into pieces of at most `chunk` elements; empty behind its end.
constexpr Range chunk_of(Range range, std::size_t chunk, std::size_t k) {
  const std::size_t begin = std::min(k * chunk, range.size);
  return {range.begin + begin, std::min(chunk, range.size - begin)};
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

// Binomial tree over 0, 1, ... with root 0: the bit that distinguishes a rank from its parent, for
// the root the tree's height. A rank's subtree is itself and the ranks up to that bit above it.
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

// The binary tree with root 0 that is filled level by level.
constexpr TreeNode heap_tree(int rank, int ranks) {
  const auto child = [ranks](int c) { return c < ranks ? c : -1; };
  return {rank == 0 ? -1 : (rank - 1) / 2, {child(2 * rank + 1), child(2 * rank + 2)}};
}

}  // namespace pith
