// Singular values by Jacobi's rotations of rows, slowly and plainly [Hestenes 1958].
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace pith::test {

struct Svd {
  std::vector<double> values;   // the largest first
  std::vector<double> vectors;  // of the smaller side, of unit length, one behind another
};

// Turns two rows, and what else is turned with them, until they are orthogonal. False: they are.
inline bool rotate(double* a, double* b, std::size_t n, double* with_a, double* with_b,
                   std::size_t m) {
  const double aa = std::inner_product(a, a + n, a, 0.0);
  const double bb = std::inner_product(b, b + n, b, 0.0);
  const double ab = std::inner_product(a, a + n, b, 0.0);
  if (std::fabs(ab) <= 1e-15 * std::sqrt(aa * bb)) return false;
  const double zeta = (bb - aa) / (2 * ab);
  const double tangent = std::copysign(1.0, zeta) / (std::fabs(zeta) + std::hypot(1.0, zeta));
  const double cosine = 1 / std::hypot(1.0, tangent);
  const double sine = cosine * tangent;
  const auto turn = [&](double* one, double* other, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const double before = one[i];
      one[i] = cosine * before - sine * other[i];
      other[i] = sine * before + cosine * other[i];
    }
  };
  turn(a, b, n);
  turn(with_a, with_b, m);
  return true;
}

// `elements`: rows x columns, row by row.
inline Svd jacobi_svd(const float* elements, std::size_t rows, std::size_t columns) {
  const std::size_t side = std::min(rows, columns);
  const std::size_t longer = std::max(rows, columns);
  std::vector<double> turned(side * longer);
  std::vector<double> turns(side * side);
  for (std::size_t i = 0; i < side; ++i) {
    turns[i * side + i] = 1;
    for (std::size_t j = 0; j < longer; ++j) {
      const std::size_t from = rows <= columns ? i * columns + j : j * columns + i;
      turned[i * longer + j] = double(elements[from]);
    }
  }
  constexpr int most_sweeps = 60;
  bool moves = true;
  for (int sweep = 0; moves && sweep < most_sweeps; ++sweep) {
    moves = false;
    for (std::size_t i = 0; i < side; ++i) {
      for (std::size_t j = i + 1; j < side; ++j) {
        moves |= rotate(&turned[i * longer], &turned[j * longer], longer, &turns[i * side],
                        &turns[j * side], side);
      }
    }
  }
  std::vector<double> lengths(side);
  for (std::size_t i = 0; i < side; ++i) {
    const double* const row = &turned[i * longer];
    lengths[i] = std::sqrt(std::inner_product(row, row + longer, row, 0.0));
  }
  std::vector<std::size_t> order(side);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; });
  Svd svd;
  for (const std::size_t i : order) {
    svd.values.push_back(lengths[i]);
    // Row i of the turns: turned = turns * matrix, so that row is the vector of this value.
    svd.vectors.insert(svd.vectors.end(), &turns[i * side], &turns[i * side] + side);
  }
  return svd;
}

}  // namespace pith::test
