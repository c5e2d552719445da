// The current distance of two cores: nanoseconds for a cache line's round trip between them. A
// virtual machine's cores share a real core's caches at some times and not at others; calls of
// microseconds then take twice as long with any library.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "machine.hpp"

namespace {

constexpr int trips = 20'000;
constexpr std::size_t batches = 5;

struct alignas(64) Line {
  std::atomic<int> value{0};
};

void answer_all(Line& there, Line& back) {
  for (int i = 1; i <= trips * static_cast<int>(batches); ++i) {
    while (there.value.load(std::memory_order_acquire) != i) continue;
    back.value.store(i, std::memory_order_release);
  }
}

double round_trip_ns(int first, Line& there, Line& back) {
  const double begin = pith_bench::seconds_now();
  for (int i = first; i < first + trips; ++i) {
    there.value.store(i, std::memory_order_release);
    while (back.value.load(std::memory_order_acquire) != i) continue;
  }
  return (pith_bench::seconds_now() - begin) / trips * 1e9;
}

}  // namespace

int main() {
  if (pith_bench::core_count() < 2) {
    fmt::print("0\n");  // nothing to measure, and threads would wait for time slices
    return 0;
  }
  Line there;
  Line back;
  // Started before this thread is bound, since it inherits this thread's set of cores.
  std::thread other([&] {
    pith_bench::pin_to_core(1);
    answer_all(there, back);
  });
  pith_bench::pin_to_core(0);
  std::array<double, batches> taken{};
  int first = 1;
  for (double& one : taken) {
    one = round_trip_ns(first, there, back);
    first += trips;
  }
  other.join();
  std::sort(taken.begin(), taken.end());
  fmt::print("{:.1f}\n", taken[batches / 2]);
  return 0;
}
