// A heap in pinned memory: the same address on host and device, so that tests written for the stub
// run on a real device unchanged.
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>

#include "tests/cuda/device_runner.hpp"

namespace {

constexpr std::size_t arena_bytes = std::size_t{512} << 20;
constexpr std::size_t granule = 64;

struct Free {
  Free* next;
};

std::mutex mutex;
std::byte* arena = nullptr;
std::size_t used = 0;
Free* spare[64] = {};

std::size_t class_of(std::size_t bytes) {
  return static_cast<std::size_t>(std::bit_width((bytes < granule ? granule : bytes) - 1));
}

void* take(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex);
    const std::size_t size_class = class_of(bytes);
    if (Free* found = spare[size_class]) {
      spare[size_class] = found->next;
      return found;
    }
    const std::size_t room = std::size_t{1} << size_class;
    if (arena && room <= arena_bytes - used) {
      void* memory = arena + used;
      used += room;
      return memory;
    }
  }
  void* memory = std::malloc(bytes > 0 ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace pith::cuda::test {

void use_pinned_heap(const Driver& driver) {
  if (arena) return;
  void* memory = nullptr;
  const unsigned flags = kHostAllocPortable | kHostAllocDeviceMap;
  REQUIRE(driver.host_alloc(&memory, arena_bytes, flags) == kSuccess);
  const std::lock_guard lock(mutex);
  arena = static_cast<std::byte*>(memory);
}

}  // namespace pith::cuda::test

void* operator new(std::size_t bytes) { return take(bytes); }

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return take(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void operator delete(void* memory) noexcept {
  auto* const at = static_cast<std::byte*>(memory);
  if (!arena || at < arena || at >= arena + arena_bytes) std::free(memory);
  // A block of the arena is lost: its size is unknown. Containers say it.
}

void operator delete(void* memory, std::size_t bytes) noexcept {
  auto* const at = static_cast<std::byte*>(memory);
  if (!arena || at < arena || at >= arena + arena_bytes) {
    std::free(memory);
    return;
  }
  const std::lock_guard lock(mutex);
  auto* block = static_cast<Free*>(memory);
  block->next = spare[class_of(bytes)];
  spare[class_of(bytes)] = block;
}
