#include "refusing_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

std::atomic<std::size_t> refused_from{refuse_nothing};
thread_local long granted_before = -1;

namespace {

bool is_refused(std::size_t bytes) {
  if (bytes >= refused_from.load(std::memory_order_relaxed)) return true;
  return granted_before >= 0 && granted_before-- == 0;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (is_refused(bytes)) return nullptr;
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment;
  return std::aligned_alloc(alignment, whole * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
