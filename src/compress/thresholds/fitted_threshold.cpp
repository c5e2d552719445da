#include "compress/thresholds/fitted_threshold.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pith {

namespace {

constexpr double first_ratio = 0.25;

// How much of the threshold a part `ratio` of magnitudes exceeds that begin at zero and have these
// moments.
double excess_of(double mean, double mean_square, double ratio, TailLaw law) {
  const double by_exponential = -mean * std::log(ratio);
  if (law == TailLaw::exponential) return by_exponential;
  const double variance = std::max(mean_square - mean * mean, 0.0);
  const double shape = 0.5 * (mean * mean / variance - 1);  // zero: the exponential law
  if (!std::isfinite(shape) || std::fabs(shape) < 1e-6) return by_exponential;
  const double scale = 0.5 * mean * (mean * mean / variance + 1);
  return scale * (1 - std::pow(ratio, shape)) / shape;
}

}  // namespace

std::uint32_t most_stages(double density) {
  return static_cast<std::uint32_t>(std::max(std::ceil(-std::log2(density)), 1.0));
}

float fitted_threshold(const MagnitudeHistogram& histogram, std::size_t count, double density,
                       TailLaw law, std::uint32_t stages) {
  constexpr float least = std::numeric_limits<float>::denorm_min();
  constexpr float most = std::numeric_limits<float>::max();
  const bool by_stages = stages > 1 && density < first_ratio;
  const double later = by_stages ? std::pow(density / first_ratio, 1.0 / (stages - 1)) : 1;
  float threshold = 0;
  for (std::uint32_t stage = 0; stage < (by_stages ? stages : 1); ++stage) {
    TailSums tail = tail_of(histogram, threshold);
    if (stage == 0) tail.count = double(count);  // zeros, too
    if (!(tail.count >= 1)) break;
    const double begin = threshold;
    const double mean = std::max(tail.mean() - begin, 0.0);
    const double mean_square =
        std::max(tail.squares / tail.count - 2 * begin * tail.mean() + begin * begin, 0.0);
    const double ratio = stage > 0 ? later : (by_stages ? first_ratio : density);
    const double next = begin + excess_of(mean, mean_square, ratio, law);
    threshold = static_cast<float>(std::min(next, double(most)));
  }
  // Magnitudes that the law does not describe may all lie below it, and would wait for ever.
  if (tail_of(histogram, threshold).count < 1) {
    threshold = threshold_for(histogram, std::max(density * double(count), 1.0));
  }
  return std::max(threshold, least);
}

}  // namespace pith
