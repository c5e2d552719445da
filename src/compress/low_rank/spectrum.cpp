// The only file that reads Eigen, which takes its time to compile. CMakeLists.txt gives Eigen's
// namespace another name, so that programs that link libpith statically may have their own.
#include "compress/low_rank/spectrum.hpp"

#include <fmt/format.h>

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <new>

namespace pith {

namespace {

using Matrix = Eigen::MatrixXd;

// The matrix times its transpose, or the other way, on the smaller side; only the lower half.
// Eigen's matrices lie column by column, so that rows of ours are columns of its.
Matrix gram(const float* elements, const MatrixShape& shape) {
  constexpr Eigen::Index at_once = 256;
  const auto rows = static_cast<Eigen::Index>(shape.rows);
  const auto columns = static_cast<Eigen::Index>(shape.columns);
  const Eigen::Map<const Eigen::MatrixXf> all(elements, columns, rows);
  const bool wide = rows <= columns;
  const Eigen::Index longer = std::max(rows, columns);
  const Eigen::Index side = std::min(rows, columns);
  Matrix sum = Matrix::Zero(side, side);
  Matrix part;
  for (Eigen::Index at = 0; at < longer; at += at_once) {
    const Eigen::Index some = std::min(at_once, longer - at);
    if (wide) {
      part = all.middleRows(at, some).transpose().cast<double>();
    } else {
      part = all.middleCols(at, some).cast<double>();
    }
    sum.selfadjointView<Eigen::Lower>().rankUpdate(part);
  }
  return sum;
}

Error failed(const MatrixShape& shape, const char* what) {
  return {Code::system, fmt::format("{} the singular values of a matrix of {} x {} elements", what,
                                    shape.rows, shape.columns)};
}

}  // namespace

// Eigen has the smallest value first, and by rounding some may be below zero.
Error Spectrum::decompose(const float* elements, const MatrixShape& shape) {
  const std::size_t side = std::min(shape.rows, shape.columns);
  try {
    values_.resize(side);
    vectors_.resize(side * side);
    const Eigen::SelfAdjointEigenSolver<Matrix> solver(gram(elements, shape));
    if (solver.info() != Eigen::Success) return failed(shape, "there is no end to");
    const double* vector = solver.eigenvectors().data();
    for (std::size_t i = side; i-- > 0; vector += side) {
      const double square = solver.eigenvalues()[static_cast<Eigen::Index>(side - 1 - i)];
      values_[i] = std::sqrt(std::max(square, 0.0));
      std::copy_n(vector, side, vectors_.data() + i * side);
    }
  } catch (const std::bad_alloc&) {
    return failed(shape, "out of memory for");
  }
  return {};
}

}  // namespace pith
