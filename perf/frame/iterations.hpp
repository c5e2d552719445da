// The times of single iterations, reported by --per_iter_timing.
#pragma once

#include <span>
#include <vector>

namespace pith_perf {

// Microseconds.
struct IterationTimes {
  int skipped = 0;  // leading iterations, excluded from all numbers except `each`
  double min = 0;
  double max = 0;
  double mean = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
  double deviation = 0;
  std::vector<double> each;
  std::vector<std::vector<double>> threads;  // per thread; `each` is their maximum

  double deviation_percent() const { return mean > 0 ? 100 * deviation / mean : 0; }
};

// `times_us`: all iterations of the first thread, then of the second, ...
IterationTimes iteration_times(std::span<const double> times_us, int iters, int skipped);

}  // namespace pith_perf
