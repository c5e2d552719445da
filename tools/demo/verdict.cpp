#include "tools/demo/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace pith::demo {
namespace {

double square(double value) { return value * value; }

}  // namespace

bool Verdict::equal() const {
  bool near = true;
  for (std::size_t i = 0; i < reached; ++i) {
    near = near && errors[i] <= checkpoints[i].error_max;
  }
  return identical && near && std::abs(accuracy - single_accuracy) <= accuracy_gap_max;
}

double relative_error(std::span<const float> a, std::span<const float> b,
                      std::span<const float> start) {
  double gap = 0.0;
  double way = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    gap += square(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    way += square(static_cast<double>(b[i]) - static_cast<double>(start[i]));
  }
  const double error = std::sqrt(gap / way);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

Verdict judge(const Board& board, const SingleProcess& single) {
  const std::span<const RankReport> reports = board.reports();
  const bool identical = std::ranges::all_of(reports, [&](const RankReport& report) {
    return report.identical == 1 && report.hash == reports[0].hash;
  });
  const std::span<const float> start = single.first_parameters;
  Verdict verdict{};
  verdict.reached = static_cast<std::size_t>(
      std::ranges::count_if(single.snapshots, [](const auto& one) { return !one.empty(); }));
  for (std::size_t i = 0; i < verdict.reached; ++i) {
    verdict.errors[i] = relative_error(board.snapshot(i), single.snapshots[i], start);
  }
  verdict.final_error = relative_error(board.final_parameters(), single.final_parameters, start);
  verdict.accuracy = reports[0].accuracy;
  verdict.single_accuracy = single.accuracy;
  verdict.identical = identical;
  return verdict;
}

void print_verdict(const Verdict& verdict, const SingleProcess& single) {
  const auto yes_no = [](bool value) { return value ? "yes" : "no"; };
  fmt::print("All ranks hold the same parameters, bit for bit: {}\n", yes_no(verdict.identical));
  fmt::print(
      "Against a single process on the same global batches ({:.1f} s), the distance between the\n"
      "parameters of both divided by the distance that training moved them:\n",
      single.seconds);
  for (std::size_t i = 0; i < verdict.reached; ++i) {
    fmt::print("  after {:2} steps  distance {:.1e} (at most {:.0e})\n", checkpoints[i].steps,
               verdict.errors[i], checkpoints[i].error_max);
  }
  fmt::print(
      "  at the end      distance {:.1e}, accuracy {:.1f} % against {:.1f} % (at most {:.1f} "
      "points apart)\n",
      verdict.final_error, 100.0 * verdict.accuracy, 100.0 * verdict.single_accuracy,
      100.0 * accuracy_gap_max);
  fmt::print(
      "Not zero, because a float32 sum depends on the order of its terms; and where that makes a\n"
      "unit open on one side only, the distance jumps: so the strict bound is the early one.\n\n");
  if (verdict.is_short()) {
    fmt::print("A run of less than {} steps is not asked for its accuracy.\n\n",
               checkpoints.back().steps);
  } else if (verdict.accuracy <= accuracy_min) {
    fmt::print("The demo counts as passed above {:.0f} % accuracy only.\n\n", 100.0 * accuracy_min);
  }
  std::fflush(stdout);
}

}  // namespace pith::demo
