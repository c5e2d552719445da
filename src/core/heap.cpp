#include "core/heap.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <iterator>

#include <fmt/format.h>

#include "core/descriptor_limit.hpp"
#include "core/per_process.hpp"

namespace pith {

namespace {

constexpr std::size_t virtual_bytes_max = std::size_t{1} << 40;
constexpr std::size_t virtual_bytes_min = std::size_t{1} << 28;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

std::size_t default_virtual_bytes() {
  const auto pages = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES));
  return std::min(pages * Heap::page_bytes * 4, virtual_bytes_max);
}

std::size_t alignment_of(std::size_t bytes) {
  if (bytes >= Heap::huge_bytes) return Heap::huge_bytes;
  return bytes >= Heap::page_bytes ? Heap::page_bytes : Heap::granule_bytes;
}

// The mapping is aligned to 2 MiB, so that huge pages of file and mapping coincide.
std::byte* map_aligned(int fd, std::size_t bytes) {
  void* reserved = mmap(nullptr, bytes + Heap::huge_bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(reserved);
  const std::size_t before = round_up(start, Heap::huge_bytes) - start;
  std::byte* base = static_cast<std::byte*>(reserved) + before;
  if (before != 0) munmap(reserved, before);
  if (before != Heap::huge_bytes) munmap(base + bytes, Heap::huge_bytes - before);
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    munmap(base, bytes);
    return nullptr;
  }
  return base;
}

}  // namespace

// Never destroyed: the program may use its memory until the process ends.
Heap& Heap::process() {
  struct ProcessHeap {
    Heap heap{default_virtual_bytes()};
  };
  return PerProcess<ProcessHeap>::get().heap;
}

Heap::Heap(std::size_t virtual_bytes, std::size_t keep_bytes) : keep_bytes_(keep_bytes) {
  fd_ = open_with_room([] { return memfd_create("pith-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (fd_ < 0) return;
  virtual_bytes = round_up(virtual_bytes, huge_bytes);
  for (std::size_t bytes = virtual_bytes;; bytes = round_up(bytes / 2, huge_bytes)) {
    if (ftruncate(fd_, static_cast<off_t>(bytes)) == 0) base_ = map_aligned(fd_, bytes);
    if (base_) {
      size_ = bytes;
      break;
    }
    if (bytes <= virtual_bytes_min) {
      close(fd_);
      fd_ = -1;
      return;
    }
  }
  // The seals let peers rely on every page of their mapping.
  fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  madvise(base_, size_, MADV_HUGEPAGE);
  untouched_.emplace(0, size_);
}

Heap::~Heap() {
  if (base_) munmap(base_, size_);
  if (fd_ >= 0) close(fd_);
}

bool Heap::carve(Ranges& ranges, std::size_t bytes, std::size_t alignment, std::size_t& offset) {
  auto best = ranges.end();
  for (auto it = ranges.begin(); it != ranges.end(); ++it) {
    const std::size_t start = round_up(it->first, alignment);
    if (start - it->first + bytes > it->second) continue;
    if (best == ranges.end() || it->second < best->second) best = it;
  }
  if (best == ranges.end()) return false;
  const auto [from, length] = *best;
  ranges.erase(best);
  offset = round_up(from, alignment);
  if (offset != from) ranges.emplace(from, offset - from);
  if (offset + bytes != from + length) {
    ranges.emplace(offset + bytes, from + length - offset - bytes);
  }
  return true;
}

void Heap::add(Ranges& ranges, std::size_t offset, std::size_t bytes) {
  const auto after = ranges.lower_bound(offset);
  if (after != ranges.end() && offset + bytes == after->first) {
    bytes += after->second;
    ranges.erase(after);
  }
  auto before = ranges.lower_bound(offset);
  if (before != ranges.begin()) {
    before = std::prev(before);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  ranges.emplace(offset, bytes);
}

bool Heap::populate(std::size_t offset, std::size_t bytes) const {
  const std::size_t from = offset / page_bytes * page_bytes;
  const std::size_t to = round_up(offset + bytes, page_bytes);
#ifdef MADV_POPULATE_WRITE
  if (madvise(base_ + from, to - from, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
#endif
  // For kernels before 5.14: touches each page by a byte of this allocation, so that bytes of
  // neighbours on the first and last page are not written.
  for (std::size_t at = offset; at < offset + bytes; at = round_up(at + 1, page_bytes)) {
    static_cast<volatile std::byte*>(base_)[at] = std::byte{0};
  }
  return to > from;
}

void* Heap::allocate(std::size_t bytes) {
  if (bytes > size_) return nullptr;
  const std::size_t alignment = alignment_of(bytes);
  bytes = round_up(std::max<std::size_t>(bytes, 1), std::min(alignment, page_bytes));
  std::size_t offset = 0;
  {
    const std::lock_guard lock(mutex_);
    if (carve(kept_, bytes, alignment, offset)) {
      kept_bytes_ -= bytes;
    } else if (!carve(untouched_, bytes, alignment, offset)) {
      return nullptr;
    }
    used_.emplace(offset, bytes);
  }
  // Takes the page faults here rather than in the first collective; outside the lock, since they
  // take long.
  if (populate(offset, bytes)) return base_ + offset;
  this->free(base_ + offset);
  return nullptr;
}

void Heap::give_back(std::size_t offset, std::size_t bytes) {
  if (kept_bytes_ + bytes > keep_bytes_ && bytes >= huge_bytes &&
      fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(bytes)) == 0) {
    add(untouched_, offset, bytes);
    return;
  }
  add(kept_, offset, bytes);
  kept_bytes_ += bytes;
}

Error Heap::free(void* memory) {
  if (!memory) return {};
  const std::lock_guard lock(mutex_);
  const auto it = contains(memory, 1) ? used_.find(offset_of(memory)) : used_.end();
  if (it == used_.end()) {
    return {Code::invalid_argument,
            fmt::format("{} was not allocated by pithMemAlloc, or has been freed", memory)};
  }
  const auto [offset, bytes] = *it;
  used_.erase(it);
  give_back(offset, bytes);
  return {};
}

std::size_t Heap::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

HeapRooms::~HeapRooms() {
  for (const Room& room : rooms_) static_cast<void>(Heap::process().free(room.memory));
}

std::byte* HeapRooms::take(std::size_t bytes) {
  const auto fits = [bytes](const Room& room) { return !room.is_taken && room.bytes >= bytes; };
  const auto room = std::ranges::find_if(rooms_, fits);
  if (room != rooms_.end()) {
    room->is_taken = true;
    return room->memory;
  }
  // A free one is too small for the calls of today.
  const auto small = std::ranges::find_if(rooms_, [](const Room& one) { return !one.is_taken; });
  if (small != rooms_.end()) {
    static_cast<void>(Heap::process().free(small->memory));
    rooms_.erase(small);
  }
  rooms_.reserve(rooms_.size() + 1);
  auto* const memory = static_cast<std::byte*>(Heap::process().allocate(bytes));
  if (memory) rooms_.push_back({memory, bytes, true});
  return memory;
}

void HeapRooms::give_back(const std::byte* room) {
  std::ranges::find(rooms_, room, &Room::memory)->is_taken = false;
}

}  // namespace pith
