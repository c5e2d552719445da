#include "compress/exdyna_threshold.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace pith {

namespace {

// The minimum threshold, for vectors with fewer than k non-zero elements: all of those are elected.
constexpr double everything = std::numeric_limits<float>::min();
// In the first steps residuals grow too fast to be tracked.
constexpr std::uint32_t first_measurements = 2;
constexpr double gain = 0.4;
constexpr double drift_gain = 0.1;
constexpr double excess_gain = 0.002;
constexpr double drift_kept = 0.96;  // growth slows down

// The n-th largest of `count` elements that are spread evenly, in the logarithm, between two
// magnitudes.
double between(double low, double high, std::uint64_t n, std::uint64_t count) {
  return high * std::pow(low / high, static_cast<double>(n) / static_cast<double>(count));
}

double edge_of_bin(std::size_t bin) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bin << MagnitudeHistogram::shift));
}

}  // namespace

float MagnitudeLevels::edge(std::size_t level, float lambda) {
  const auto steps = static_cast<std::int32_t>(level) - static_cast<std::int32_t>(elected);
  const std::int32_t bits = std::bit_cast<std::int32_t>(lambda) + steps * (1 << shift);
  return std::bit_cast<float>(std::max(bits, 0));
}

void MagnitudeLevels::add(std::span<const float> values, float lambda) {
  const auto unit = std::bit_cast<std::int32_t>(lambda);
  for (const float value : values) {
    const std::int32_t above = std::bit_cast<std::int32_t>(std::fabs(value)) - unit;
    const std::int32_t level = (above >> shift) + static_cast<std::int32_t>(elected);
    ++counts[static_cast<std::size_t>(std::clamp(level, 0, static_cast<std::int32_t>(size) - 1))];
  }
}

float ExdynaThreshold::counts() const {
  if (rule_ != Rule::quantile) return elects();
  return std::max(static_cast<float>(everything), MagnitudeLevels::edge(0, elects()));
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
  // Bin 0 contains the zeros.
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
  const double kth = between(MagnitudeLevels::edge(level - 1, elects()),
                             MagnitudeLevels::edge(level, elects()), k - above, counts[level - 1]);
  const double error = std::log(kth / lambda_);
  // With error feedback the magnitudes may end abruptly at lambda: then only lambda's drift decides
  // how many elements pass per step.
  const double excess = std::log(double(elected) / double(k));
  drift_ = drift_kept * drift_ + drift_gain * error + excess_gain * std::clamp(excess, -1.0, 1.0);
  drift_ = std::clamp(drift_, -0.2, 0.2);
  lambda_ *= std::exp(gain * error + drift_);
  last_ = kth;
}

}  // namespace pith
