// Blocks of different sizes: where they lie in the buffers of an allgather, reduce-scatter or
// alltoall.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "collectives/patterns.hpp"

namespace pith {

// By the caller's rank, in elements; of no size: at the buffer's begin. The memory is the caller's.
struct UnevenBlocks {
  const Range* send = nullptr;  // of reduce-scatter and alltoall; else send is one block
  const Range* recv = nullptr;  // of allgather and alltoall; else recv is one block
  std::size_t ranks = 0;        // 0: blocks are equal

  bool used() const { return ranks != 0; }
  // The blocks of the buffer that holds several, of an allgather or reduce-scatter.
  const Range* common() const { return send ? send : recv; }
  // Elements of the longest one that this rank sends or gets.
  std::size_t longest() const;
};

inline std::size_t total_of(const Range* blocks, std::size_t ranks) {
  std::size_t total = 0;
  for (std::size_t r = 0; r < ranks; ++r) total += blocks[r].size;
  return total;
}

inline std::size_t longest_of(const Range* blocks, std::size_t ranks) {
  std::size_t longest = 0;
  for (std::size_t r = 0; r < ranks; ++r) longest = std::max(longest, blocks[r].size);
  return longest;
}

inline std::size_t UnevenBlocks::longest() const {
  return std::max(send ? longest_of(send, ranks) : 0, recv ? longest_of(recv, ranks) : 0);
}

// Elements of all blocks in their first `columns`.
inline std::size_t elements_in_columns(std::span<const Range> blocks, std::size_t columns) {
  std::size_t elements = 0;
  for (const Range& block : blocks) elements += std::min(block.size, columns);
  return elements;
}

// The most columns that have at most `room` elements in all blocks together; at least one.
inline std::size_t columns_within(std::span<const Range> blocks, std::size_t room) {
  std::size_t columns = std::max<std::size_t>(1, room / blocks.size());
  while (true) {
    std::size_t shorter = 0;
    std::size_t longer = 0;  // blocks that have further columns
    for (const Range& block : blocks) {
      if (block.size > columns) {
        ++longer;
      } else {
        shorter += block.size;
      }
    }
    if (longer == 0 || shorter >= room) return columns;
    const std::size_t wider = (room - shorter) / longer;
    if (wider <= columns) return columns;
    columns = wider;
  }
}

// The elements from the buffer's begin to the end of its last block.
inline std::size_t end_of(const Range* blocks, std::size_t ranks) {
  std::size_t end = 0;
  for (std::size_t r = 0; r < ranks; ++r) end = std::max(end, blocks[r].begin + blocks[r].size);
  return end;
}

// The same blocks in `memory`, which is filled with them.
inline UnevenBlocks copied_to(std::vector<Range>& memory, const UnevenBlocks& blocks) {
  memory.clear();
  for (const Range* of : {blocks.send, blocks.recv}) {
    if (of) memory.insert(memory.end(), of, of + blocks.ranks);
  }
  const Range* const first = memory.data();
  return {blocks.send ? first : nullptr,
          blocks.recv ? first + (blocks.send ? blocks.ranks : 0) : nullptr, blocks.ranks};
}

}  // namespace pith
