#include "compress/exdyna_threshold.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace pith {

namespace {

// The least threshold: fewer than k elements are not zero, and all of them are elected.
constexpr double everything = std::numeric_limits<float>::min();
// In the first steps residuals grow too fast to be followed.
constexpr std::uint32_t first_measurements = 2;
constexpr double gain = 0.4;
constexpr double drift_gain = 0.1;
constexpr double excess_gain = 0.002;
constexpr double drift_kept = 0.96;  // growth slows down

// Where among `count` elements, spread evenly over the logarithm between two magnitudes, the n-th
// largest lies.
double between(double low, double high, std::uint64_t n, std::uint64_t count) {
  return high * std::pow(low / high, static_cast<double>(n) / static_cast<double>(count));
}

double edge_of_bin(std::size_t bin) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bin << MagnitudeHistogram::shift));
}

double edge_of_level(std::size_t level) {
  return MagnitudeLevels::lowest *
         std::exp2(static_cast<double>(level) / MagnitudeLevels::per_octave);
}

}  // namespace

void MagnitudeLevels::add(std::span<const float> values, double lambda) {
  const auto elects = static_cast<float>(lambda);
  for (const float value : values) {
    const float magnitude = std::fabs(value);
    const double octaves = std::log2(double(magnitude) / lambda);
    const auto level = static_cast<std::size_t>(
        std::clamp(per_octave * octaves + double(elected), 0.0, double(size - 1)));
    // Whatever the logarithm's rounding: on the side of lambda on which it was selected.
    ++counts[magnitude >= elects ? std::max(level, elected) : std::min(level, elected - 1)];
  }
}

float ExdynaThreshold::counts() const {
  if (rule_ != Rule::quantile) return elects();
  return static_cast<float>(std::max(everything, MagnitudeLevels::lowest * lambda_));
}

void ExdynaThreshold::start(std::size_t k) {
  lambda_ = 1.0 / (2.0 * std::sqrt(static_cast<double>(k)));
}

void ExdynaThreshold::measure(std::span<const std::uint64_t, MagnitudeHistogram::bins> counts,
                              std::size_t k) {
  const double before = last_;
  last_ = 0;
  lambda_ = everything;
  std::uint64_t above = 0;
  // Bin 0 has the zeros.
  for (std::size_t bin = MagnitudeHistogram::bins - 1; bin > 0; --bin) {
    const std::uint64_t n = counts[bin];
    if (above + n >= k) {
      lambda_ = between(edge_of_bin(bin), edge_of_bin(bin + 1), k - above, n);
      lambda_ = std::max(lambda_, everything);
      last_ = lambda_;
      break;
    }
    above += n;
  }
  drift_ = before > 0 && last_ > 0 ? std::clamp(std::log(last_ / before) / 3, -0.2, 0.2) : 0;
  measured_ = std::min(measured_ + 1, first_measurements);
}

void ExdynaThreshold::follow(std::uint64_t elected, const MagnitudeLevels& levels, std::size_t k) {
  if (rule_ == Rule::quantile) return follow_quantile(levels, k);
  follow_authors(static_cast<double>(elected) / static_cast<double>(k));
}

void ExdynaThreshold::follow_authors(double ratio) {
  const double middle = rule_ == Rule::released ? 0 : 1;
  double factor = 0.995;
  if (ratio > 1.1) {
    factor = 1.005;
  } else if (ratio > 0.909) {
    factor = ratio > middle ? 1.00125 : 0.9987;
  }
  lambda_ *= factor;
}

void ExdynaThreshold::follow_quantile(const MagnitudeLevels& levels, std::size_t k) {
  const auto& counts = levels.counts;
  const auto elected =
      std::accumulate(counts.begin() + MagnitudeLevels::elected, counts.end(), std::uint64_t{1});
  if (lambda_ == everything) {
    const std::uint64_t all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    if (all == 0 || all > k) forget();
    return;
  }
  if (measured_ < first_measurements) return forget();
  std::uint64_t above = counts.back();
  if (above >= k) return forget();
  std::size_t level = MagnitudeLevels::size - 1;
  while (level > 0 && above + counts[level - 1] < k) above += counts[--level];
  if (level == 0) return forget();
  const double kth = lambda_ * between(edge_of_level(level - 1), edge_of_level(level), k - above,
                                       counts[level - 1]);
  const double error = std::log(kth / lambda_);
  // Under an error feedback the magnitudes may end abruptly at lambda: then it is its drift alone
  // that decides how many pass it in a step.
  const double excess = std::log(double(elected) / double(k));
  drift_ = drift_kept * drift_ + drift_gain * error + excess_gain * std::clamp(excess, -1.0, 1.0);
  drift_ = std::clamp(drift_, -0.2, 0.2);
  lambda_ *= std::exp(gain * error + drift_);
  last_ = kth;
}

}  // namespace pith
