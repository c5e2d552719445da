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
  return identical && checked_error <= kCheckedErrorMax && final_error <= kFinalErrorMax &&
         std::abs(accuracy - single_accuracy) <= kAccuracyGapMax;
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
  return {relative_error(board.checked_parameters(), single.checked_parameters, start),
          relative_error(board.final_parameters(), single.final_parameters, start),
          reports[0].accuracy, single.accuracy, identical};
}

void print_verdict(const Verdict& verdict, const SingleProcess& single) {
  const auto yes_no = [](bool value) { return value ? "yes" : "no"; };
  fmt::print("All ranks hold the same parameters, bit for bit: {}\n", yes_no(verdict.identical));
  fmt::print(
      "Against a single process on the same global batches ({:.1f} s), the distance between the\n"
      "parameters of both divided by the distance that training moved them:\n",
      single.seconds);
  fmt::print("  after {} steps  distance {:.1e} (at most {:.0e})\n", kCheckStep,
             verdict.checked_error, kCheckedErrorMax);
  fmt::print("  at the end      distance {:.1e} (at most {:.0e})\n", verdict.final_error,
             kFinalErrorMax);
  fmt::print("                  accuracy {:.1f} % against {:.1f} % (at most {:.1f} points apart)\n",
             100.0 * verdict.accuracy, 100.0 * verdict.single_accuracy, 100.0 * kAccuracyGapMax);
  fmt::print(
      "Not zero, because a float32 sum depends on the order of its terms, and training amplifies\n"
      "that: so the strict bound is the early one.\n\n");
  if (verdict.accuracy <= kAccuracyMin) {
    fmt::print("The demo counts as passed above {:.0f} % accuracy only.\n\n", 100.0 * kAccuracyMin);
  }
  std::fflush(stdout);
}

}  // namespace pith::demo
