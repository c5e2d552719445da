// Where the stub's device memory lies: one sparse memory file a process, so that other processes
// can map parts of it. No file system has a name for it, so it ends with those who use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace pith::cuda {

// In front of every allocation, on a page of its own: what a process that maps it looks at.
struct ArenaHeader {
  std::uint64_t id = 0;  // 0: freed
  std::size_t bytes = 0;
};

class Arena {
 public:
  static constexpr std::size_t page_bytes = 4096;

  // That of this process; a forked child gets its own.
  static Arena& process();

  // Null where there is no memory. On a page; under ASan its ends are guarded.
  void* take(std::size_t bytes, std::uint64_t id);
  void give(void* memory);

  int fd() const { return fd_; }
  // Where the header of an allocation lies in the file.
  std::size_t offset_of(const void* memory) const {
    return static_cast<std::size_t>(static_cast<const std::byte*>(memory) - base_) - page_bytes;
  }

 private:
  Arena();

  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // offset -> bytes
  std::map<std::size_t, std::size_t> used_;
};

}  // namespace pith::cuda
