// How a vector is cut into matrices, and which of them are sent as two factors, or have rows that
// are elected by a sketch: matrix * right^T with a right factor that is drawn, so that a sketch is
// as large as a left factor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/sparse_kernel_args.hpp"

namespace pith {

// Elements of a vector, row by row.
struct MatrixShape {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;

  bool operator==(const MatrixShape&) const = default;
};

// A matrix that is sent as two factors, or consecutive elements that are sent as they are. Places
// in the messages are counted in float32.
struct LowRankPart {
  std::size_t begin = 0;  // in the vector
  std::size_t count = 0;
  FactorShape shape = {};  // of rank 0: sent as they are
  std::size_t left = 0;    // in the first message: the left factor, or the elements
  std::size_t right = 0;   // in the second message: the right factor

  bool is_factored() const { return shape.rank > 0; }
};

// Float32 of factors, and of elements that are sent as they are.
struct LowRankCounts {
  std::size_t factors = 0;
  std::size_t elements = 0;

  std::size_t all() const { return factors + elements; }
};

class LowRankLayout {
 public:
  static constexpr std::size_t any_rows = ~std::size_t{0};

  // The matrices lie one behind another. A matrix becomes factors if these have less than half of
  // its elements.
  LowRankLayout(std::span<const MatrixShape> matrices, std::size_t rank);
  // A vector of unknown shape as a matrix that is nearly square, or has the most rows, and a rest.
  static LowRankLayout square(std::size_t count, std::size_t rank,
                              std::size_t most_rows = any_rows);
  // Of the nearly square one, without making the layout: the matrix (0 x 0: too small for
  // factors)...
  static MatrixShape square_matrix(std::size_t count, std::size_t rank);
  // ...and of either what it is sent as.
  static LowRankCounts square_counts(std::size_t count, std::size_t rank,
                                     std::size_t most_rows = any_rows);

  std::span<const MatrixShape> matrices() const { return matrices_; }
  std::span<const LowRankPart> parts() const { return parts_; }
  std::size_t count() const { return count_; }              // elements of the vector
  std::size_t left_count() const { return left_count_; }    // float32 in the first message
  std::size_t right_count() const { return right_count_; }  // float32 in the second message
  // Of the matrices.
  std::uint64_t digest() const;

 private:
  std::vector<MatrixShape> matrices_;
  std::vector<LowRankPart> parts_;
  std::size_t count_ = 0;
  std::size_t left_count_ = 0;
  std::size_t right_count_ = 0;
};

}  // namespace pith
