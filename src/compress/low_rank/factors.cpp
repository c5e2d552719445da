#include "compress/low_rank/factors.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "core/mix.hpp"

namespace pith {

namespace {

// The sum of four uniform numbers, without rounding.
float drawn(std::uint64_t key, std::uint64_t index) {
  std::uint64_t bits = mix(mix(key, index), index);
  std::uint64_t sum = 0;
  for (int i = 0; i < 4; ++i, bits >>= 16) sum += bits & 0xffff;
  return (static_cast<float>(sum) - 131070.0f) / 65536;
}

void draw(std::uint64_t key, std::size_t begin, std::span<float> vector) {
  for (std::size_t j = 0; j < vector.size(); ++j) vector[j] = drawn(key, begin + j);
}

// Calls body(place, vector) for the vectors of all right factors.
template <class Body>
void for_each_right(const LowRankLayout& layout, float* right, const Body& body) {
  for (const LowRankPart& part : layout.parts()) {
    const std::size_t columns = part.shape.columns;
    for (std::size_t k = 0; k < part.shape.rank; ++k) {
      const std::size_t place = part.right + k * columns;
      body(place, std::span(right + place, columns));
    }
  }
}

// Partial sums in a fixed order, which compilers make vectors of.
double product(const double* a, const double* b, std::size_t n) {
  std::array<double, 8> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= n; i += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double all = 0;
  for (const double sum : sums) all += sum;
  for (; i < n; ++i) all += a[i] * b[i];
  return all;
}

void subtract(double factor, const double* from, std::size_t n, double* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] -= factor * from[i];
}

}  // namespace

void draw_right(const LowRankLayout& layout, std::uint64_t seed, float* right) {
  const std::uint64_t key = mix(0, seed);
  for_each_right(layout, right,
                 [&](std::size_t place, std::span<float> vector) { draw(key, place, vector); });
}

void renew_right(const LowRankLayout& layout, std::uint64_t seed, std::uint64_t step,
                 float* right) {
  const std::uint64_t key = mix(mix(0, seed), step + 1);
  for_each_right(layout, right, [&](std::size_t place, std::span<float> vector) {
    float most = 0;
    for (const float value : vector) most = std::max(most, std::fabs(value));
    if (most < std::numeric_limits<float>::min()) return draw(key, place, vector);
    const float scale = std::ldexp(1.0f, -std::max(std::ilogb(most) + 1, -126));
    for (float& value : vector) value *= scale;
  });
}

// Modified Gram-Schmidt in float64, on columns that lie one behind another.
void orthonormalise(std::size_t rows, std::size_t rank, float* left, double* room) {
  // Of a column's square. The rounding of float32 leaves this much of a column that others span.
  constexpr double spanned = 1e-12;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < rank; ++k) room[k * rows + i] = double(left[i * rank + k]);
  }
  for (std::size_t k = 0; k < rank; ++k) {
    double* const column = room + k * rows;
    const double before = product(column, column, rows);
    for (std::size_t earlier = 0; earlier < k; ++earlier) {
      const double* const other = room + earlier * rows;
      subtract(product(column, other, rows), other, rows, column);
    }
    const double after = product(column, column, rows);
    const double scale = after > spanned * before ? 1 / std::sqrt(after) : 0;
    for (std::size_t i = 0; i < rows; ++i) column[i] *= scale;
  }
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < rank; ++k) {
      left[i * rank + k] = static_cast<float>(room[k * rows + i]);
    }
  }
}

// Elements sent as they are count as a left factor with a right one of 1.
void add_taken(Compute& vectors, Compute& reachable, const LowRankTaken& taken, float factor,
               float* accumulator) {
  static constexpr float one = 1;
  const float* left = taken.left.data();
  const float* right = taken.right.data();
  const float* unit = &one;
  Scratch copied;
  if (vectors.kind() != MemoryKind::host) {
    const std::size_t lefts = taken.left.size();
    const std::size_t rights = taken.right.size();
    copied = Scratch(reachable, (lefts + rights + 1) * sizeof(float));
    auto* const at = reinterpret_cast<float*>(copied.bytes().data);
    std::copy_n(left, lefts, at);
    std::copy_n(right, rights, at + lefts);
    at[lefts + rights] = one;
    left = at;
    right = at + lefts;
    unit = right + rights;
  }
  Fence last;
  for (const LowRankPart& part : taken.layout->parts()) {
    const bool factored = part.is_factored();
    const FactorShape shape = factored ? part.shape : FactorShape{part.count, 1, 1};
    last = vectors.run<AddProductKernel>({shape, left + part.left,
                                          factored ? right + part.right : unit, factor,
                                          accumulator + part.begin});
  }
  vectors.retire(Lease(), std::move(copied), last);
}

}  // namespace pith
