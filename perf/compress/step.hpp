// One step of exact top-k with error feedback, by the library and by the STL:
//  accumulator += gradient; the k largest magnitudes are removed, in order of their index.
#pragma once

#include <cstddef>
#include <cstdint>

#include "perf/compress/vectors.hpp"

namespace pith_bench {

struct Step {
  float* accumulator;
  const float* gradient;
  std::size_t count;
  std::size_t k;
  std::uint32_t* indices;  // out, with room for `capacity` of both
  float* values;
  std::size_t capacity;  // at least 4 k
  float previous;        // k-th magnitude of the step before, or 0
  float error;           // mean error of such a forecast so far, as a logarithm
  float smallest = 0;    // out: k-th magnitude
};

// std::transform, nth_element on a copy of the magnitudes, a scan.
void step_stl(Step& step, Pages<float>& magnitudes);

// accumulator += gradient, in place.
void add_in_place(float* accumulator, const float* gradient, std::size_t count);

}  // namespace pith_bench
