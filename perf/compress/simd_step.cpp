// A competitor: good vector code in every pass, but one pass per operation. The quickselect is the
// usual one on a copy of the values: pivots from a small sample, and each round keeps the side that
// holds the k-th. Compiled for AVX2 and chosen at run time; without AVX2 the STL version runs.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>

#include "kernels/set_bits.hpp"
#include "perf/compress/step.hpp"

#define PITH_AVX2 __attribute__((target("avx2,bmi2,popcnt")))

namespace pith_bench {

namespace {

constexpr std::size_t lanes = 8;

PITH_AVX2 inline __m256i front_lanes(unsigned mask) {
  const auto* row = pith::kernels::set_bits[mask].data();
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(row)));
}
PITH_AVX2 inline __m256 magnitude(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

PITH_AVX2 void add_and_copy(const Step& step, float* magnitudes) {
  for (std::size_t i = 0; i + lanes <= step.count; i += lanes) {
    const __m256 sum =
        _mm256_add_ps(_mm256_loadu_ps(step.accumulator + i), _mm256_loadu_ps(step.gradient + i));
    _mm256_storeu_ps(step.accumulator + i, sum);
    _mm256_stream_ps(magnitudes + i, magnitude(sum));
  }
  _mm_sfence();
}

struct Sides {
  std::size_t above, rest;
};

// Moves values above the pivot to the front of `values`, the rest to `other`.
PITH_AVX2 Sides partition(float* values, float* other, std::size_t count, float pivot) {
  const __m256 bound = _mm256_set1_ps(pivot);
  std::size_t above = 0, rest = 0, i = 0;
  for (; i + lanes <= count; i += lanes) {
    const __m256 v = _mm256_loadu_ps(values + i);
    const auto mask =
        static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(v, bound, _CMP_GT_OQ)));
    _mm256_storeu_ps(values + above, _mm256_permutevar8x32_ps(v, front_lanes(mask)));
    _mm256_storeu_ps(other + rest, _mm256_permutevar8x32_ps(v, front_lanes(mask ^ 0xff)));
    const auto more = static_cast<std::size_t>(std::popcount(mask));
    above += more;
    rest += lanes - more;
  }
  for (; i < count; ++i) (values[i] > pivot ? values[above++] : other[rest++]) = values[i];
  return {above, rest};
}

float pivot_of(const float* values, std::size_t count) {
  std::array<float, 64> sample;
  for (std::size_t i = 0; i < sample.size(); ++i) sample[i] = values[i * (count / sample.size())];
  std::nth_element(sample.begin(), sample.begin() + 32, sample.end());
  return sample[32];
}

float kth_largest(float* values, float* other, std::size_t count, std::size_t k) {
  constexpr std::size_t few = 1024;
  while (count > few) {
    const float pivot = pivot_of(values, count);
    const Sides sides = partition(values, other, count, pivot);
    if (k <= sides.above) {
      count = sides.above;
      continue;
    }
    k -= sides.above;
    std::swap(values, other);
    if (sides.rest == count) {  // nothing is above: separate the values equal to the pivot
      float* end = std::partition(values, values + count, [=](float x) { return x == pivot; });
      const auto equal = static_cast<std::size_t>(end - values);
      if (k <= equal) return pivot;
      k -= equal;
      values = end;
      other += equal;
      count -= equal;
      continue;
    }
    count = sides.rest;
  }
  std::nth_element(values, values + (k - 1), values + count, std::greater<>());
  return values[k - 1];
}

PITH_AVX2 std::size_t compact(const Step& step) {
  const __m256 bound = _mm256_set1_ps(step.smallest);
  __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  std::size_t found = 0;
  for (std::size_t i = 0; i + lanes <= step.count; i += lanes) {
    const __m256 v = _mm256_loadu_ps(step.accumulator + i);
    const __m256 passes = _mm256_cmp_ps(magnitude(v), bound, _CMP_GE_OQ);
    const auto mask = static_cast<unsigned>(_mm256_movemask_ps(passes));
    if (mask != 0) {
      const __m256i front = front_lanes(mask);
      _mm256_storeu_ps(step.values + found, _mm256_permutevar8x32_ps(v, front));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(step.indices + found),
                          _mm256_permutevar8x32_epi32(index, front));
      found += static_cast<std::size_t>(std::popcount(mask));
      _mm256_storeu_ps(step.accumulator + i, _mm256_andnot_ps(passes, v));
    }
    index = _mm256_add_epi32(index, _mm256_set1_epi32(lanes));
  }
  return found;
}

// Too many elements of equal magnitude may have been taken: the last ones are put back.
void drop_ties(const Step& step, std::size_t found) {
  for (std::size_t i = found, surplus = found - step.k; surplus > 0 && i-- > 0;) {
    if (std::fabs(step.values[i]) != step.smallest) continue;
    step.accumulator[step.indices[i]] = step.values[i];
    std::copy(step.values + i + 1, step.values + found, step.values + i);
    std::copy(step.indices + i + 1, step.indices + found, step.indices + i);
    --surplus;
    --found;
  }
}

PITH_AVX2 void add_avx2(float* accumulator, const float* gradient, std::size_t count) {
  for (std::size_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    for (std::size_t j = i; j < i + 4 * lanes; j += lanes) {
      _mm256_storeu_ps(accumulator + j, _mm256_add_ps(_mm256_loadu_ps(accumulator + j),
                                                      _mm256_loadu_ps(gradient + j)));
    }
  }
}

}  // namespace

void step_simd(Step& step, Pages<float>& magnitudes, Pages<float>& other) {
  if (!__builtin_cpu_supports("avx2")) return step_stl(step, magnitudes);
  add_and_copy(step, magnitudes.data());
  step.smallest = kth_largest(magnitudes.data(), other.data(), step.count, step.k);
  drop_ties(step, compact(step));
}

void add_simd(float* accumulator, const float* gradient, std::size_t count) {
  if (__builtin_cpu_supports("avx2")) return add_avx2(accumulator, gradient, count);
  std::transform(accumulator, accumulator + count, gradient, accumulator, std::plus<>());
}

}  // namespace pith_bench
