// The counters of --resources count what is known to happen.
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "catch.hpp"
#include "perf/frame/allocations.hpp"
#include "perf/frame/resources.hpp"
#include "perf/frame/system_calls.hpp"

using namespace pith_perf;

TEST_CASE("allocations are counted, those of C++ too", "[perf]") {
  const auto before = allocations();
  if (!before) {
    WARN("allocations cannot be counted here");
    return;
  }
  void* volatile plain = std::malloc(100);
  void* volatile aligned = std::aligned_alloc(64, 128);
  void* volatile object = ::operator new(8);
  CHECK(*allocations() == *before + 3);
  std::free(plain);
  std::free(aligned);
  ::operator delete(object);
  CHECK(*allocations() == *before + 3);
}

TEST_CASE("system calls are counted and waiting told apart", "[perf]") {
  bool ran = false;
  const auto calls = count_system_calls([&] {
    for (int i = 0; i < 7; ++i) syscall(SYS_getuid);
    for (int i = 0; i < 5; ++i) syscall(SYS_sched_yield);
    ran = true;
  });
  CHECK(ran);
  if (!calls) {
    WARN("tracing is not allowed here");
    return;
  }
  CHECK(calls->other == 7);
  CHECK(calls->waiting == 5);
}

TEST_CASE("usage is told per call", "[perf]") {
  int calls = 0;
  const Usage usage = usage_of(10, [&] {
    ++calls;
    syscall(SYS_getuid);
    syscall(SYS_getgid);
  });
  CHECK(calls == 20);  // once for each of the counters
  if (usage.system_calls >= 0) CHECK(usage.system_calls == 2);
  if (usage.allocations >= 0) CHECK(usage.allocations == 0);
}

TEST_CASE("resident memory grows by what is touched", "[perf]") {
  const std::int64_t before = resident_bytes();
  if (before < 0) {
    WARN("the kernel does not tell");
    return;
  }
  constexpr std::size_t bytes = std::size_t{16} << 20;
  const auto block = std::make_unique<char[]>(bytes);  // zeroed, hence touched
  const std::int64_t grown = resident_bytes() - before;
  CHECK(block[bytes - 1] == 0);
  CHECK(grown >= static_cast<std::int64_t>(bytes) / 2);
  CHECK(grown <= static_cast<std::int64_t>(bytes) * 2);
}
