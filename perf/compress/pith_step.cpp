// How a caller may use the kernels. The threshold comes from the step before, lowered by 2 %, if a
// sample of this step's sums agrees with it; otherwise from the sample, lowered by 3.5 standard
// deviations. Where too few pass after all, they go back and a lower threshold is tried.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "kernels/sparse.hpp"
#include "perf/compress/step.hpp"

namespace pith_bench {

namespace {

using namespace pith;

constexpr std::size_t line = 16;  // floats
constexpr std::size_t sampled_lines = 2048;

struct Sample {
  std::array<float, line * sampled_lines> magnitudes;
  std::size_t count = 0;
  float expected = 0;  // how many of them are among the k largest

  std::size_t at_least(float threshold) const {
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; ++i) found += magnitudes[i] >= threshold;
    return found;
  }
  float of_rank(float rank) {
    if (rank >= float(count)) return 0;
    const auto place = magnitudes.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 0.0f));
    std::nth_element(magnitudes.begin(), place,
                     magnitudes.begin() + static_cast<std::ptrdiff_t>(count), std::greater<>());
    return *place;
  }
};

// Whole lines at equal distances.
void draw(const Step& step, Sample& sample) {
  const std::size_t stride = std::max(line, step.count / sampled_lines);
  sample.count = 0;
  for (std::size_t at = 0; at + line <= step.count && sample.count < sample.magnitudes.size();
       at += stride) {
    if (at + 24 * stride < step.count) {
      __builtin_prefetch(step.accumulator + at + 24 * stride);
      __builtin_prefetch(step.gradient + at + 24 * stride);
    }
    for (std::size_t i = at; i < at + line; ++i) {
      sample.magnitudes[sample.count++] = std::fabs(step.accumulator[i] + step.gradient[i]);
    }
  }
  sample.expected = float(double(sample.count) * double(step.k) / double(step.count));
}

float threshold_of(const Step& step, Sample& sample) {
  const float deviation = std::sqrt(sample.expected);
  if (step.previous > 0) {
    const float lowered = 0.98f * step.previous;
    const auto found = static_cast<float>(sample.at_least(lowered));
    if (found >= sample.expected && found <= 1.5f * sample.expected + 4 * deviation) return lowered;
  }
  return sample.of_rank(sample.expected + 3.5f * deviation + 1);
}

PassResult select(Step& step, const float* gradient, float threshold) {
  PassResult result;
  kernels::select({{step.accumulator, reinterpret_cast<const std::byte*>(gradient), DType::f32,
                    step.count, false, &result},
                   threshold,
                   0,
                   step.indices,
                   step.values,
                   step.capacity});
  return result;
}

}  // namespace

void step_pith(Step& step) {
  static thread_local Sample sample;
  draw(step, sample);
  float threshold = threshold_of(step, sample);
  const float* gradient = step.gradient;
  PassResult found;
  float higher = 1.5f;
  while (true) {
    found = select(step, gradient, threshold);
    if (found.selected >= step.k && found.selected <= step.capacity) break;
    const std::size_t listed = std::min(found.selected, step.capacity);
    kernels::give_back({step.accumulator, step.indices,
                        reinterpret_cast<const std::byte*>(step.values), listed, DType::f32});
    gradient = nullptr;
    if (found.selected < step.k) {
      threshold *= 0.9f;
    } else {
      threshold *= higher;
      higher = std::sqrt(higher);
    }
  }
  double squares = 0;
  kernels::keep_largest({step.indices, step.values, found.selected, step.k, step.accumulator,
                         &step.smallest, &squares});
}

}  // namespace pith_bench
