// Wraps the C library's allocation functions to count calls. A program's own definitions precede
// those of all shared libraries, so Pith's allocations are counted, too.
#include "frame/allocations.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

std::atomic<std::uint64_t> counted{0};

void count() { counted.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): glibc's own names
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t items, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

[[gnu::visibility("default")]] void* malloc(std::size_t bytes) noexcept {
  count();
  return __libc_malloc(bytes);
}

[[gnu::visibility("default")]] void* calloc(std::size_t items, std::size_t bytes) noexcept {
  count();
  return __libc_calloc(items, bytes);
}

[[gnu::visibility("default")]] void* realloc(void* old, std::size_t bytes) noexcept {
  count();
  return __libc_realloc(old, bytes);
}

[[gnu::visibility("default")]] void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  count();
  return __libc_memalign(alignment, bytes);
}

[[gnu::visibility("default")]] void* aligned_alloc(std::size_t alignment,
                                                   std::size_t bytes) noexcept {
  count();
  return __libc_memalign(alignment, bytes);
}

[[gnu::visibility("default")]] int posix_memalign(void** memory, std::size_t alignment,
                                                  std::size_t bytes) noexcept {
  count();
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) {
    return EINVAL;
  }
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"

namespace pith_perf {

std::optional<std::uint64_t> allocations() { return counted.load(std::memory_order_relaxed); }

}  // namespace pith_perf

#else

namespace pith_perf {

std::optional<std::uint64_t> allocations() { return std::nullopt; }

}  // namespace pith_perf

#endif
