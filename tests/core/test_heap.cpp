#include <sys/stat.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "core/heap.hpp"

using pith::Heap;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;

std::size_t resident_bytes(const Heap& heap) {
  struct stat status = {};
  fstat(heap.fd(), &status);
  return static_cast<std::size_t>(status.st_blocks) * 512;
}

bool aligned(const void* memory, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(memory) % to == 0;
}

}  // namespace

TEST_CASE("heap: alignment follows size, and memory is inside") {
  Heap heap(1024 * mib);
  REQUIRE(heap.fd() >= 0);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100},
                                  std::size_t{4095}, std::size_t{4096}, mib, 2 * mib, 5 * mib}) {
    void* memory = heap.allocate(bytes);
    REQUIRE(memory);
    CHECK(aligned(memory, bytes >= 2 * mib ? 2 * mib : bytes >= 4096 ? 4096 : 64));
    CHECK(heap.contains(memory, bytes));
    CHECK(heap.offset_of(memory) < heap.size());
    std::memset(memory, 1, bytes);
    CHECK(!heap.free(memory));
  }
}

TEST_CASE("heap: foreign and repeated frees are errors, null is none") {
  Heap heap(256 * mib);
  int local = 0;
  CHECK(heap.free(&local).code() == pith::Code::invalid_argument);
  auto* memory = static_cast<std::byte*>(heap.allocate(1000));
  CHECK(heap.free(memory + 1).code() == pith::Code::invalid_argument);
  CHECK(!heap.free(memory));
  CHECK(heap.free(memory).code() == pith::Code::invalid_argument);
  CHECK(!heap.free(nullptr));
}

TEST_CASE("heap: what alignment takes of a range is no room") {
  Heap heap(256 * mib);
  void* const first = heap.allocate(4096);
  void* middle[3] = {};
  for (void*& part : middle) part = heap.allocate(mib);
  const auto* const last = static_cast<std::byte*>(heap.allocate(4096));
  for (void* const part : middle) CHECK(!heap.free(part));
  // Of 3 MiB that begin with the second page 1 MiB lies behind the first 2 MiB.
  const auto* const huge = static_cast<std::byte*>(heap.allocate(2 * mib));
  REQUIRE(huge);
  CHECK((last + 4096 <= huge || huge + 2 * mib <= last));
  CHECK(first);
}

TEST_CASE("heap: ranges at the border are not inside") {
  Heap heap(256 * mib);
  auto* memory = static_cast<std::byte*>(heap.allocate(64));
  std::byte* base = memory - heap.offset_of(memory);
  CHECK(heap.contains(base, heap.size()));
  CHECK(!heap.contains(base, heap.size() + 1));
  CHECK(!heap.contains(base + heap.size(), 1));
  CHECK(!heap.contains(base - 1, 1));
  CHECK(heap.allocate(heap.size() + 1) == nullptr);
}

TEST_CASE("heap: freed pages are kept up to the cap and then returned") {
  Heap heap(1024 * mib, 8 * mib);
  void* first = heap.allocate(8 * mib);
  void* second = heap.allocate(16 * mib);
  CHECK(resident_bytes(heap) >= 24 * mib);
  CHECK(!heap.free(first));
  CHECK(heap.kept_bytes() == 8 * mib);
  CHECK(!heap.free(second));
  CHECK(heap.kept_bytes() == 8 * mib);
  CHECK(resident_bytes(heap) < 12 * mib);
  CHECK(heap.allocate(8 * mib) == first);
  CHECK(heap.kept_bytes() == 0);
}

TEST_CASE("heap: live allocations never overlap, from several threads") {
  Heap heap(1024 * mib, 4 * mib);
  const auto worker = [&heap](unsigned seed, bool& good) {
    std::mt19937 random(seed);
    std::vector<std::pair<unsigned char*, std::size_t>> live;
    const auto release = [&](std::size_t at) {
      const auto [memory, bytes] = live[at];
      const auto mark = static_cast<unsigned char>(seed + bytes % 61);
      good = good && memory[0] == mark && memory[bytes - 1] == mark && !heap.free(memory);
      live[at] = live.back();
      live.pop_back();
    };
    for (int i = 0; i < 300; ++i) {
      const std::size_t bytes = random() % (i % 10 == 0 ? 3 * mib : 20000) + 1;
      auto* memory = static_cast<unsigned char*>(heap.allocate(bytes));
      good = good && memory;
      if (!memory) return;
      std::memset(memory, static_cast<int>(seed + bytes % 61), bytes);
      live.emplace_back(memory, bytes);
      if (live.size() > 8) release(random() % live.size());
    }
    while (!live.empty()) release(live.size() - 1);
  };
  bool first = true;
  bool second = true;
  std::thread other([&] { worker(1, first); });
  worker(100, second);
  other.join();
  CHECK(first);
  CHECK(second);
}
