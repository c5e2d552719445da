// Whether memory that leaves this process is noticed, in a process of its own: UCX's event library
// patches functions for good. Exits with 77 where it cannot be used.
#include <sys/mman.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "transport/verbs/memory_events.hpp"

namespace {

class Heard final : public pith::MemoryListener {
 public:
  void leaves(const std::byte*, std::size_t bytes) noexcept override { bytes_ += bytes; }
  std::size_t take() { return bytes_.exchange(0); }

 private:
  std::atomic<std::size_t> bytes_{0};
};

constexpr std::size_t size = std::size_t{8} << 20;

bool fails(bool good, const char* what) {
  if (!good) std::fprintf(stderr, "not noticed: %s\n", what);
  return !good;
}

}  // namespace

int main() {
  if (const pith::Error error = pith::MemoryEvents::begin()) {
    std::fprintf(stderr, "%s\n", error.message());
    return 77;
  }
  Heard heard;
  pith::MemoryEvents::add(heard);
  void* map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return 1;
  heard.take();
  bool bad = false;
  madvise(map, size, MADV_DONTNEED);
  bad |= fails(heard.take() >= size, "madvise");
  munmap(map, size);
  bad |= fails(heard.take() >= size, "munmap");
  void* volatile block = std::malloc(size);  // large enough to be mapped
  std::free(block);
  bad |= fails(heard.take() >= size, "free");
  pith::MemoryEvents::remove(heard);
  map = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(map, size);
  bad |= fails(heard.take() == 0, "the end of listening");
  return bad ? 1 : 0;
}
