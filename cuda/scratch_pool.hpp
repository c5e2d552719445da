// Scratch memory cut from a few large blocks, which are taken from the driver before calls need
// them.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device.hpp"

namespace pith::cuda {

// Buddy allocator: sizes are powers of two, and freed halves merge.
class Buddy {
 public:
  explicit Buddy(unsigned order);  // manages 2^order leaves
  static constexpr std::size_t none = ~std::size_t{0};

  std::size_t take(unsigned order);  // returns the first leaf, or none
  void give(std::size_t leaf, unsigned order);

 private:
  void update_above(std::size_t node, unsigned order);

  unsigned order_;
  std::vector<std::uint8_t> longest_;  // by node: 1 + order of its longest free run; 0: none
};

class ScratchPool {
 public:
  ScratchPool(Device& device, MemoryKind kind) : device_(device), kind_(kind) {}
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  // Guarantees that `bytes` can be taken at once, fragmentation aside.
  Error reserve(std::size_t bytes);
  // Never null. Counts a late block and calls the driver if the reserve was too small.
  std::byte* take(std::size_t bytes);
  void give(std::byte* scratch, std::size_t bytes);
  // For scratch that is never given back: while the result lives, the blocks are not reused, even
  // after the pool is destroyed.
  std::shared_ptr<void> withhold() const { return withheld_; }

  std::uint64_t late_blocks() const { return late_blocks_; }

 private:
  struct Block {
    std::byte* base;
    std::size_t bytes;
    Buddy buddy;
  };
  // Returns the block's bytes; 0: out of memory.
  std::size_t add_block(std::size_t bytes);
  std::size_t missing(std::size_t bytes);
  std::byte* take_spare(unsigned order);  // null: no block has room

  Device& device_;
  const MemoryKind kind_;
  std::mutex mutex_;
  std::vector<Block> blocks_;
  std::size_t capacity_ = 0;
  std::atomic<std::uint64_t> late_blocks_{0};
  std::shared_ptr<void> withheld_ = std::make_shared<char>();
};

}  // namespace pith::cuda
