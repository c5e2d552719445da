// Pooled buffers for messages that must leave their slot or have none, by powers of two.
//
// Not thread-safe: whoever drives the engine uses it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "core/operation.hpp"

namespace pith {

// The base of who owns them, and is told of their release.
class MessageHeap : public SlotOwner {
 public:
  MessageHeap() = default;
  MessageHeap(const MessageHeap&) = delete;
  MessageHeap& operator=(const MessageHeap&) = delete;
  std::byte* take(std::size_t bytes) {
    const auto size_class = static_cast<std::uint64_t>(std::bit_width(std::max(bytes, least) - 1));
    auto& list = free_[size_class];
    if (!list.empty()) {
      std::byte* buffer = list.back();
      list.pop_back();
      idle_ -= bytes_of(size_class);
      ++out_;
      return buffer;
    }
    auto* raw = static_cast<std::byte*>(::operator new(prefix + bytes_of(size_class)));
    bytes_ += bytes_of(size_class);
    ++out_;
    std::memcpy(raw, &size_class, sizeof size_class);
    return raw + prefix;
  }
  void give(std::byte* buffer) {
    --out_;
    std::uint64_t size_class = 0;
    std::memcpy(&size_class, buffer - prefix, sizeof size_class);
    const std::size_t bytes = bytes_of(size_class);
    const bool is_kept = size_class <= pooled_class_max && idle_ + bytes <= kept_bytes_max;
    if (is_kept && keep(size_class, buffer)) {
      idle_ += bytes;
      return;
    }
    bytes_ -= bytes;
    ::operator delete(buffer - prefix);
  }
  void release_slot(int, std::uint64_t slot) override { give(reinterpret_cast<std::byte*>(slot)); }
  std::size_t out() const { return out_; }
  std::size_t bytes() const { return bytes_; }

 protected:
  ~MessageHeap() {
    for (auto& list : free_) {
      for (std::byte* buffer : list) ::operator delete(buffer - prefix);
    }
  }

 private:
  // A message whose buffer is given back has been received, so that must not fail.
  bool keep(std::size_t size_class, std::byte* buffer) noexcept {
    try {
      free_[size_class].push_back(buffer);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  static constexpr std::size_t prefix = 64;
  static constexpr std::size_t least = 64;
  // 4 MiB. Longer messages take so long that an allocation is nothing to them, and one early
  // giant is no reason to keep its memory for ever.
  static constexpr std::uint64_t pooled_class_max = 22;
  // Idle. More than the limits of the backlog let come up, but where what is awaited lay behind it.
  static constexpr std::size_t kept_bytes_max = std::size_t{4} << 20;
  static std::size_t bytes_of(std::uint64_t size_class) { return std::size_t{1} << size_class; }

  std::array<std::vector<std::byte*>, 64> free_;
  std::size_t out_ = 0;
  std::size_t bytes_ = 0;
  std::size_t idle_ = 0;  // of those, in free_
};

}  // namespace pith
