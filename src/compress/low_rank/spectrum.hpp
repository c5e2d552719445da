// The singular values of a matrix, and its singular vectors.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "compress/low_rank/layout.hpp"
#include "core/error.hpp"

namespace pith {

// Those of one matrix after another, in float64: all values, and the vectors of the smaller side,
// from which, with the matrix, those of the other side follow.
//
// They come from the eigenvectors of the matrix times its transpose, on the smaller side. So a
// value below 1e-8 of the largest, which is rounding in float32, is not told from zero, and values
// have that error. The vectors are orthonormal to float64's rounding, whatever the matrix is.
//
// Of m x n elements, m <= n, it takes some m^2 n + 9 m^3 multiplications on one core without a
// pause, and memory for 2 m^2 + 256 n numbers (256 m where the matrix is cut along n), of which
// m^2 stay. Not thread-safe; the bits depend on nothing but the elements and the compiler.
class Spectrum {
 public:
  // `elements`: finite, row by row; there are some. An error if memory is lacking, or if no
  // eigenvectors are found, which is not known to happen.
  Error decompose(const float* elements, const MatrixShape& shape);

  // Of the last matrix, until the next: the largest value first, none negative.
  std::span<const double> values() const { return values_; }
  // Of unit length, belongs to values()[i]: with as many numbers as there are values.
  std::span<const double> vector(std::size_t i) const {
    return std::span(vectors_).subspan(i * values_.size(), values_.size());
  }

 private:
  std::vector<double> values_;
  std::vector<double> vectors_;  // one behind another
};

}  // namespace pith
