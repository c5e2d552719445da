// Between which magnitudes the k-th largest of a vector lies, by a forecast from the steps before
// and a sample of the vector itself: the narrower of the two, where they agree, else the sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>

namespace pith {

struct ThresholdBounds {
  float low = 0;  // more than k elements are at least as large, almost surely; 0: not known
  float high = std::numeric_limits<float>::infinity();  // and less than k as large as this
};

// How many elements a sample should have: enough to tell, few beside the vector.
constexpr std::size_t sample_elements(std::size_t count) {
  constexpr std::size_t share = 512;
  constexpr std::size_t least = 1024;
  constexpr std::size_t most = std::size_t{1} << 15;
  return count / share < least ? 0 : std::min(count / share, most);
}

// Of `sample`, which is reordered, `expected` elements should be among the vector's k largest.
// Their standard deviation is taken as twice that of independent ones, for the elements of a line
// of memory belong together: a layer's, a row's.
inline ThresholdBounds narrow(std::span<float> sample, double expected, ThresholdBounds forecast) {
  constexpr double sure = 3.5;     // standard deviations
  constexpr double plausible = 2;  // of them, what a good forecast may miss by
  const double deviation = 2 * std::sqrt(expected);
  const auto passing = [](std::span<float> among, float threshold) {
    const auto end =
        std::partition(among.begin(), among.end(), [threshold](float m) { return m >= threshold; });
    return among.first(static_cast<std::size_t>(end - among.begin()));
  };
  std::span<float> top = passing(sample, forecast.low);
  const bool has_enough = double(top.size()) >= expected - plausible * deviation;
  const bool has_few =
      double(passing(top, forecast.high).size()) <= expected + plausible * deviation;
  if (!(forecast.low > 0) || !has_enough || !has_few) {
    forecast = {};
    top = sample;
  }
  const auto of_rank = [&](double rank) {
    const auto place = top.begin() + static_cast<std::ptrdiff_t>(rank);
    std::nth_element(top.begin(), place, top.end(), std::greater<>());
    return *place;
  };
  const double most = expected + sure * deviation + 1;
  const double least = expected - sure * deviation;
  if (most < double(top.size())) forecast.low = std::max(forecast.low, of_rank(most));
  if (least >= 1 && least < double(top.size())) {
    forecast.high = std::min(forecast.high, of_rank(least));
  }
  return forecast;
}

}  // namespace pith
