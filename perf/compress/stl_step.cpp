#include <algorithm>
#include <cmath>
#include <functional>

#include "perf/compress/step.hpp"

namespace pith_bench {

void add_in_place(float* accumulator, const float* gradient, std::size_t count) {
  std::transform(accumulator, accumulator + count, gradient, accumulator, std::plus<>());
}

void step_stl(Step& step, Pages<float>& magnitudes) {
  float* const sums = step.accumulator;
  add_in_place(sums, step.gradient, step.count);
  std::transform(sums, sums + step.count, magnitudes.data(), [](float x) { return std::fabs(x); });
  float* const kth = magnitudes.data() + (step.k - 1);
  std::nth_element(magnitudes.data(), kth, magnitudes.data() + step.count, std::greater<>());
  step.smallest = *kth;
  std::size_t ties = step.k - static_cast<std::size_t>(std::count_if(
                                  magnitudes.data(), kth, [&](float x) { return x > *kth; }));
  std::size_t found = 0;
  for (std::size_t i = 0; i < step.count; ++i) {
    const float magnitude = std::fabs(sums[i]);
    if (magnitude < step.smallest) continue;
    if (magnitude == step.smallest && ties-- == 0) {
      ++ties;
      continue;
    }
    step.indices[found] = static_cast<std::uint32_t>(i);
    step.values[found++] = sums[i];
    sums[i] = 0;
  }
}

}  // namespace pith_bench
