// The registered heap behind pithMemAlloc: memory that other processes of this host can map.
//
// It is one sparse memfd with a large virtual size, mapped once. A peer maps it once too, so an
// offset suffices to name memory, and calls register nothing. The memfd has no name in a file
// system and ends with the last process that has it open.
//
// Thread-safe. contains() and offset_of() read only constants and cost a few instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/error.hpp"

namespace pith {

class Heap {
 public:
  static constexpr std::size_t granule_bytes = 64;
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t huge_bytes = std::size_t{2} << 20;

  // The heap of this process. A forked child gets its own, because the parent goes on using the
  // inherited one.
  static Heap& process();

  // Takes less than `virtual_bytes` if the address space is limited. `keep_bytes`: how much freed
  // memory keeps its pages for reuse.
  explicit Heap(std::size_t virtual_bytes, std::size_t keep_bytes = std::size_t{256} << 20);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Aligned to 64 bytes, from 4 KiB on to a page, from 2 MiB on to 2 MiB; its pages are present,
  // its contents arbitrary. Null if there is no memory.
  void* allocate(std::size_t bytes);
  Error free(void* memory);

  bool contains(const void* memory, std::size_t bytes) const {
    const auto offset =
        reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(base_);
    return offset < size_ && bytes <= size_ - offset;
  }
  std::uint64_t offset_of(const void* memory) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(memory) - base_);
  }
  // -1 and 0 if the system refused the memfd or the mapping; allocate() then returns null.
  int fd() const { return fd_; }
  std::size_t size() const { return size_; }
  // Freed memory that still has its pages.
  std::size_t kept_bytes() const;

 private:
  using Ranges = std::map<std::size_t, std::size_t>;  // offset -> bytes

  // Takes an aligned range out of the smallest free range that fits; false if none does.
  static bool carve(Ranges& ranges, std::size_t bytes, std::size_t alignment, std::size_t& offset);
  // Adds a free range and joins it with its neighbours.
  static void add(Ranges& ranges, std::size_t offset, std::size_t bytes);
  bool populate(std::size_t offset, std::size_t bytes) const;
  void give_back(std::size_t offset, std::size_t bytes);

  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  const std::size_t keep_bytes_;
  mutable std::mutex mutex_;
  Ranges untouched_;  // free, without pages
  Ranges kept_;       // free, with pages
  std::size_t kept_bytes_ = 0;
  std::unordered_map<std::size_t, std::size_t> used_;
};

// Memory of the process's heap that the calls of a communicator use in turn, so that a series of
// calls allocates only at first. Not thread-safe.
class HeapRooms {
 public:
  HeapRooms() = default;
  ~HeapRooms();
  HeapRooms& operator=(HeapRooms&& other) noexcept {
    rooms_.swap(other.rooms_);
    return *this;
  }

  // Null if there is no memory.
  std::byte* take(std::size_t bytes);
  // What a failed call has taken is never given back, as peers whose calls end well may still read
  // it.
  void give_back(const std::byte* room);

 private:
  struct Room {
    std::byte* memory;
    std::size_t bytes;
    bool is_taken;
  };
  std::vector<Room> rooms_;
};

}  // namespace pith
