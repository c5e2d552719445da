// Bounds of the k-th largest magnitude of a vector, from a forecast based on earlier steps and a
// sample of the vector: the narrower one if they agree, else the sample's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>

#include "core/sparse_kernel_args.hpp"

namespace pith {

struct ThresholdBounds {
  float low = 0;  // almost surely more than k elements are at least this large; 0: unknown
  float high = std::numeric_limits<float>::infinity();  // and fewer than k this large
};

// The sample's size: large enough to be useful, small compared with the vector.
constexpr std::size_t sample_elements(std::size_t count) {
  constexpr std::size_t share = 512;
  constexpr std::size_t least = 1024;
  constexpr std::size_t most = std::size_t{1} << 15;
  return count / share < least ? 0 : std::min(count / share, most);
}

// Standard deviation of the number of sampled elements above a threshold. Lines of memory are
// sampled, whose elements are correlated (a layer's, a row's), so only lines count as independent.
inline double deviation_of(std::span<const float> sample, float threshold) {
  constexpr std::size_t line = SampleKernel::line;
  double sum = 0;
  double squares = 0;
  for (std::size_t at = 0; at + line <= sample.size(); at += line) {
    int passing = 0;
    for (std::size_t i = at; i < at + line; ++i) passing += sample[i] >= threshold ? 1 : 0;
    sum += passing;
    squares += double(passing) * passing;
  }
  return std::sqrt(std::max(1.0, squares - sum * sum * double(line) / double(sample.size())));
}

// `expected` elements of `sample`, which is reordered, should be among the vector's k largest.
inline ThresholdBounds narrow(std::span<float> sample, double expected, ThresholdBounds forecast) {
  constexpr double sure = 3.5;     // in standard deviations
  constexpr double plausible = 4;  // by how many of these a good forecast may be off
  const auto passing = [](std::span<float> among, float threshold) {
    const auto end =
        std::partition(among.begin(), among.end(), [threshold](float m) { return m >= threshold; });
    return among.first(static_cast<std::size_t>(end - among.begin()));
  };
  const double least_deviation = std::sqrt(expected);
  double deviation = 2 * least_deviation;
  std::span<float> top = sample;
  bool agrees = false;
  if (forecast.low > 0) {
    const double own = std::max(deviation_of(sample, forecast.low), least_deviation);
    const double allowed = plausible * own;
    const std::span<float> above = passing(sample, forecast.low);
    const bool has_enough = double(above.size()) >= expected - allowed;
    const bool has_few = double(passing(above, forecast.high).size()) <= expected + allowed;
    agrees = has_enough && has_few;
    if (agrees) {
      deviation = own;
      top = above;
    }
  }
  if (!agrees) forecast = {};
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
