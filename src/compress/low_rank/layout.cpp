#include "compress/low_rank/layout.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/mix.hpp"

namespace pith {

namespace {

bool has_factors(const MatrixShape& matrix, std::size_t rank) {
  return 2 * rank * (matrix.rows + matrix.columns) < matrix.rows * matrix.columns;
}

MatrixShape nearly_square(std::size_t count, std::size_t most_rows) {
  const auto rows = std::min(static_cast<std::size_t>(std::sqrt(double(count))), most_rows);
  return {rows, rows == 0 ? 0 : count / rows};
}

}  // namespace

LowRankLayout::LowRankLayout(std::span<const MatrixShape> matrices, std::size_t rank)
    : matrices_(matrices.begin(), matrices.end()) {
  for (const auto& [rows, columns] : matrices) {
    const std::size_t count = rows * columns;
    if (count == 0) continue;
    if (has_factors({rows, columns}, rank)) {
      parts_.push_back({count_, count, {rows, columns, rank}, left_count_, right_count_});
      left_count_ += rows * rank;
      right_count_ += rank * columns;
    } else {
      if (parts_.empty() || parts_.back().is_factored()) {
        parts_.push_back({count_, 0, {}, left_count_, right_count_});
      }
      parts_.back().count += count;
      left_count_ += count;
    }
    count_ += count;
  }
}

LowRankLayout LowRankLayout::square(std::size_t count, std::size_t rank, std::size_t most_rows) {
  const MatrixShape matrix = nearly_square(count, most_rows);
  const std::array matrices{matrix, MatrixShape{1, count - matrix.rows * matrix.columns}};
  return {matrices, rank};
}

MatrixShape LowRankLayout::square_matrix(std::size_t count, std::size_t rank) {
  const MatrixShape matrix = nearly_square(count, any_rows);
  return has_factors(matrix, rank) ? matrix : MatrixShape();
}

LowRankCounts LowRankLayout::square_counts(std::size_t count, std::size_t rank,
                                           std::size_t most_rows) {
  const MatrixShape matrix = nearly_square(count, most_rows);
  if (!has_factors(matrix, rank)) return {0, count};
  return {rank * (matrix.rows + matrix.columns), count - matrix.rows * matrix.columns};
}

std::uint64_t LowRankLayout::digest() const {
  std::uint64_t hash = matrices_.size();
  for (const auto& [rows, columns] : matrices_) hash = mix(mix(hash, rows), columns);
  return hash;
}

}  // namespace pith
