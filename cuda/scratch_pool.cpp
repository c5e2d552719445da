#include "cuda/scratch_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "core/log.hpp"

namespace pith::cuda {

namespace {

constexpr unsigned leaf_order = 10;  // 1 KiB; smaller leaves would not be worth their nodes
constexpr std::size_t smallest_block = std::size_t{4} << 20;

unsigned order_of(std::size_t bytes) {
  const auto bits = static_cast<unsigned>(std::bit_width(std::max<std::size_t>(bytes, 1) - 1));
  return std::max(bits, leaf_order) - leaf_order;
}

}  // namespace

Buddy::Buddy(unsigned order) : order_(order), longest_(std::size_t{2} << order) {
  for (std::size_t node = 1; node < longest_.size(); ++node) {
    longest_[node] = static_cast<std::uint8_t>(order + 2 - std::bit_width(node));
  }
}

std::size_t Buddy::take(unsigned order) {
  const auto wanted = static_cast<std::uint8_t>(order + 1);
  if (order > order_ || longest_[1] < wanted) return none;
  std::size_t node = 1;
  for (unsigned at = order_; at > order; --at) {
    node *= 2;
    // The tighter fit preserves long free runs.
    const bool left = longest_[node] >= wanted;
    const bool right = longest_[node + 1] >= wanted;
    if (!left || (right && longest_[node + 1] < longest_[node])) ++node;
  }
  const std::size_t leaf = (node << order) - (std::size_t{1} << order_);
  longest_[node] = 0;
  update_above(node, order);
  return leaf;
}

void Buddy::give(std::size_t leaf, unsigned order) {
  const std::size_t node = (leaf + (std::size_t{1} << order_)) >> order;
  longest_[node] = static_cast<std::uint8_t>(order + 1);
  update_above(node, order);
}

void Buddy::update_above(std::size_t node, unsigned order) {
  for (; node > 1; node /= 2, ++order) {
    const std::uint8_t one = longest_[node];
    const std::uint8_t other = longest_[node ^ 1];
    const bool whole = one == order + 1 && other == order + 1;
    longest_[node / 2] = whole ? static_cast<std::uint8_t>(order + 2) : std::max(one, other);
  }
}

ScratchPool::~ScratchPool() {
  const std::weak_ptr<void> withheld = std::exchange(withheld_, nullptr);
  if (withheld.expired()) {
    for (const Block& block : blocks_) device_.give_block(kind_, block.base, block.bytes);
    return;
  }
  std::vector<Device::Block> blocks;
  blocks.reserve(blocks_.size());
  for (const Block& block : blocks_) blocks.push_back({kind_, block.base, block.bytes});
  device_.give_later(std::move(blocks), [withheld] { return withheld.expired(); });
}

// Called without the lock: the driver may wait for streams that wait for a thread which takes or
// gives scratch.
std::size_t ScratchPool::add_block(std::size_t bytes) {
  bytes = std::bit_ceil(std::max(bytes, smallest_block));
  std::byte* base = device_.take_block(kind_, bytes);
  if (!base) return 0;
  Block block{base, bytes, Buddy(order_of(bytes))};
  const std::lock_guard lock(mutex_);
  blocks_.push_back(std::move(block));
  capacity_ += bytes;
  return bytes;
}

std::size_t ScratchPool::missing(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return bytes - std::min(bytes, capacity_);
}

Error ScratchPool::reserve(std::size_t bytes) {
  const std::size_t wanted = missing(bytes);
  if (wanted == 0 || add_block(wanted) != 0) return {};
  return {Code::cuda, fmt::format("no {} memory for {} bytes of scratch",
                                  kind_ == MemoryKind::cuda ? "device" : "pinned", bytes)};
}

std::byte* ScratchPool::take_spare(unsigned order) {
  const std::lock_guard lock(mutex_);
  for (Block& block : blocks_) {
    const std::size_t leaf = block.buddy.take(order);
    if (leaf != Buddy::none) return block.base + (leaf << leaf_order);
  }
  return nullptr;
}

std::byte* ScratchPool::take(std::size_t bytes) {
  const unsigned order = order_of(bytes);
  while (true) {
    if (std::byte* const spare = take_spare(order)) return spare;
    const std::size_t added = add_block(bytes);
    if (added == 0) throw std::bad_alloc();
    ++late_blocks_;
    log(LogLevel::info,
        fmt::format("scratch for CUDA calls grew during a call, by {} bytes", added),
        LogTopic::alloc);
  }
}

void ScratchPool::give(std::byte* scratch, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (Block& block : blocks_) {
    if (scratch < block.base || scratch >= block.base + block.bytes) continue;
    block.buddy.give(static_cast<std::size_t>(scratch - block.base) >> leaf_order, order_of(bytes));
    return;
  }
}

}  // namespace pith::cuda
