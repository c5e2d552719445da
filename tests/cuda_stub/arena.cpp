#include "tests/cuda_stub/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <iterator>
#include <new>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) (static_cast<void>(address))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) (static_cast<void>(address))
#endif

namespace pith::cuda {

namespace {

constexpr std::size_t most_bytes = std::size_t{32} << 30;
constexpr std::size_t least_bytes = std::size_t{256} << 20;

std::size_t pages_of(std::size_t bytes) {
  return (bytes + Arena::page_bytes - 1) / Arena::page_bytes * Arena::page_bytes;
}

}  // namespace

Arena& Arena::process() {
  static std::mutex mutex;
  static Arena* arena = nullptr;  // never freed: streams outlive main()
  static pid_t owner = 0;
  const std::lock_guard lock(mutex);
  if (owner != getpid()) {
    arena = new Arena;
    owner = getpid();
  }
  return *arena;
}

Arena::Arena() {
  fd_ = memfd_create("pith-stub-device", MFD_CLOEXEC);
  for (std::size_t bytes = most_bytes; fd_ >= 0 && bytes >= least_bytes; bytes /= 2) {
    if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) continue;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (memory == MAP_FAILED) continue;
    base_ = static_cast<std::byte*>(memory);
    free_.emplace(0, bytes);
    return;
  }
}

void* Arena::take(std::size_t bytes, std::uint64_t id) {
  const std::size_t whole = page_bytes + pages_of(bytes);
  const std::lock_guard lock(mutex_);
  for (auto run = free_.begin(); whole > bytes && run != free_.end(); ++run) {
    if (run->second < whole) continue;
    const auto [offset, length] = *run;
    free_.erase(run);
    if (length > whole) free_.emplace(offset + whole, length - whole);
    used_.emplace(offset, whole);
    std::byte* start = base_ + offset;
    ASAN_UNPOISON_MEMORY_REGION(start, whole);
    new (start) ArenaHeader{id, bytes};
    ASAN_POISON_MEMORY_REGION(start, page_bytes);
    ASAN_POISON_MEMORY_REGION(start + page_bytes + bytes, whole - page_bytes - bytes);
    return start + page_bytes;
  }
  return nullptr;
}

void Arena::give(void* memory) {
  const std::size_t offset = offset_of(memory);
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(offset);
  if (found == used_.end()) return;
  const std::size_t bytes = found->second;
  used_.erase(found);
  std::byte* start = base_ + offset;
  ASAN_UNPOISON_MEMORY_REGION(start, bytes);
  // Who still maps it reads zeros from now on, which no test takes for data.
  if (madvise(start, bytes, MADV_REMOVE) != 0) new (start) ArenaHeader{};
  ASAN_POISON_MEMORY_REGION(start, bytes);
  auto run = free_.emplace(offset, bytes).first;
  const auto next = std::next(run);
  if (next != free_.end() && run->first + run->second == next->first) {
    run->second += next->second;
    free_.erase(next);
  }
  if (run == free_.begin()) return;
  const auto before = std::prev(run);
  if (before->first + before->second != run->first) return;
  before->second += run->second;
  free_.erase(run);
}

}  // namespace pith::cuda
