// The counters of --resources count what is known to happen.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <type_traits>

#include "catch.hpp"
#include "perf/frame/allocations.hpp"
#include "perf/frame/resources.hpp"
#include "perf/frame/system_calls.hpp"

using namespace pith_perf;

namespace {

// In a child of this process, which has no thread but its own: those that other cases have left
// behind make calls too.
template <class Measure>
auto in_a_child(Measure measure) {
  using Result = decltype(measure());
  static_assert(std::is_trivially_copyable_v<Result>);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const Result result = measure();
    const bool told = write(ends[1], &result, sizeof result) == sizeof result;
    _exit(told ? 0 : 1);
  }
  Result result{};
  CHECK(read(ends[0], &result, sizeof result) == sizeof result);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  close(ends[0]);
  close(ends[1]);
  return result;
}

}  // namespace

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
  struct Found {
    bool ran = false;
    bool counted = false;
    SystemCalls calls{};
  };
  const Found found = in_a_child([] {
    Found here;
    const auto calls = count_system_calls([&] {
      for (int i = 0; i < 7; ++i) syscall(SYS_getuid);
      for (int i = 0; i < 5; ++i) syscall(SYS_sched_yield);
      here.ran = true;
    });
    here.counted = calls.has_value();
    if (calls) here.calls = *calls;
    return here;
  });
  CHECK(found.ran);
  if (!found.counted) {
    WARN("tracing is not allowed here");
    return;
  }
  CHECK(found.calls.other == 7);
  CHECK(found.calls.waiting == 5);
}

TEST_CASE("usage is told per call", "[perf]") {
  struct Found {
    int calls = 0;
    Usage usage;
  };
  const auto [calls, usage] = in_a_child([] {
    Found here;
    here.usage = usage_of(10, [&] {
      ++here.calls;
      syscall(SYS_getuid);
      syscall(SYS_getgid);
    });
    return here;
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
