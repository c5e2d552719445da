#include "frame/iterations.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace pith_perf {
namespace {

// The smallest time that at least `percent` of all times do not exceed.
double percentile(std::span<const double> sorted, std::size_t percent) {
  const std::size_t rank = (sorted.size() * percent + 99) / 100;
  return sorted[std::min(sorted.size(), std::max<std::size_t>(rank, 1)) - 1];
}

}  // namespace

IterationTimes iteration_times(std::span<const double> times_us, int iters, int skipped) {
  const auto count = static_cast<std::size_t>(iters);
  IterationTimes times;
  times.skipped = skipped;
  times.each.assign(count, 0);
  for (std::size_t first = 0; first + count <= times_us.size(); first += count) {
    const std::span<const double> thread = times_us.subspan(first, count);
    times.threads.emplace_back(thread.begin(), thread.end());
    std::transform(thread.begin(), thread.end(), times.each.begin(), times.each.begin(),
                   [](double a, double b) { return std::max(a, b); });
  }
  std::vector<double> sorted(times.each.begin() + skipped, times.each.end());
  std::sort(sorted.begin(), sorted.end());
  times.min = sorted.front();
  times.max = sorted.back();
  times.p50 = sorted[sorted.size() / 2];
  times.p95 = percentile(sorted, 95);
  times.p99 = percentile(sorted, 99);
  const auto number = static_cast<double>(sorted.size());
  times.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / number;
  double squares = 0;
  for (const double time : sorted) squares += (time - times.mean) * (time - times.mean);
  times.deviation = std::sqrt(squares / number);
  return times;
}

}  // namespace pith_perf
