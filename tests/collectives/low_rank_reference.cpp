#include "tests/collectives/low_rank_reference.hpp"

#include <algorithm>
#include <cmath>

#include "compress/scheme.hpp"

namespace pith::test {

namespace {

using Matrix = std::vector<double>;  // row by row

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

double product(const Matrix& a, std::size_t i, const Matrix& b, std::size_t j,
               std::size_t columns) {
  double sum = 0;
  for (std::size_t k = 0; k < columns; ++k) sum += a[i * columns + k] * b[j * columns + k];
  return sum;
}

// Makes the rows orthonormal; one that the others span already becomes zero. The smallest share of
// a row that was left.
double orthonormalise_rows(Matrix& rows, std::size_t n, std::size_t columns) {
  double least = 1;
  for (std::size_t i = 0; i < n; ++i) {
    const double before = std::sqrt(product(rows, i, rows, i, columns));
    for (std::size_t j = 0; j < i; ++j) {
      const double along = product(rows, i, rows, j, columns);
      for (std::size_t k = 0; k < columns; ++k)
        rows[i * columns + k] -= along * rows[j * columns + k];
    }
    const double after = std::sqrt(product(rows, i, rows, i, columns));
    if (before > 0) least = std::min(least, after / before);
    const double scale = after > 1e-6 * before ? 1 / after : 0;
    for (std::size_t k = 0; k < columns; ++k) rows[i * columns + k] *= scale;
  }
  return least;
}

// One step of algorithm 1 of the paper in float64, from what the program had before it.
class LowRankReference final : public SchemeReference {
 public:
  explicit LowRankReference(const SparseCase& c) : case_(c) {
    for (const std::size_t count : c.counts) {
      rests_.emplace_back(at(c.ranks), std::vector<float>(count));
    }
    rights_.resize(c.counts.size());
  }

  std::string check(SparseProgram& program) override {
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      std::string failure = check_tensor(program, t);
      for (int r = 0; r < case_.ranks; ++r) rests_[t][at(r)] = program.residual(r, t);
      rights_[t] = program.compressor(0, t).low_rank.right;
      if (!failure.empty()) return fmt::format("tensor {}: {}", t, failure);
    }
    return {};
  }

 private:
  std::string check_tensor(SparseProgram& program, std::size_t t) {
    const LowRankState& state = program.compressor(0, t).low_rank;
    for (int r = 1; r < case_.ranks; ++r) {
      if (program.compressor(r, t).low_rank.right != state.right) return "ranks keep other factors";
    }
    if (rights_[t].empty()) {
      rights_[t].resize(state.layout->right_count());
      draw_right(*state.layout, Spec::parse(case_.spec)->seed, rights_[t].data());
    }
    if (starts_dense(*Spec::parse(case_.spec), program.compressor(0, t).step - 1)) {
      rights_[t].clear();
      return check_elements(program, t, {.begin = 0, .count = case_.counts[t]});
    }
    for (const LowRankPart& part : state.layout->parts()) {
      std::string failure =
          part.is_factored() ? check_matrix(program, t, part) : check_elements(program, t, part);
      if (!failure.empty()) return failure;
    }
    return {};
  }

  std::vector<Matrix> sums_of(SparseProgram& program, std::size_t t,
                              const LowRankPart& part) const {
    std::vector<Matrix> sums(at(case_.ranks), Matrix(part.count));
    for (int r = 0; r < case_.ranks; ++r) {
      for (std::size_t i = 0; i < part.count; ++i) {
        const std::size_t element = part.begin + i;
        sums[at(r)][i] = double(rests_[t][at(r)][element] + program.gradient(r, t)[element]);
      }
    }
    return sums;
  }
  float divisor() const { return case_.average ? float(case_.ranks) : 1; }

  std::string check_elements(SparseProgram& program, std::size_t t, const LowRankPart& part) const {
    const std::vector<Matrix> sums = sums_of(program, t, part);
    for (int r = 0; r < case_.ranks; ++r) {
      const std::vector<float> rest = program.residual(r, t);
      const auto* const begin = rest.data() + part.begin;
      if (std::any_of(begin, begin + part.count, [](float kept) { return kept != 0; })) {
        return "something is left";
      }
    }
    for (std::size_t i = 0; i < part.count; ++i) {
      double sum = 0;
      double size = 0;
      for (int r = 0; r < case_.ranks; ++r) {
        sum += sums[at(r)][i];
        size += std::fabs(sums[at(r)][i]);
      }
      const double found = double(program.result(0, t)[part.begin + i]) * double(divisor());
      if (std::fabs(found - sum) > 1e-6 * size) {
        return fmt::format("element {}: {} and not {}", part.begin + i, found, sum);
      }
    }
    return {};
  }

  std::string check_matrix(SparseProgram& program, std::size_t t, const LowRankPart& part) const {
    const auto [rows, columns, rank] = part.shape;
    const std::vector<Matrix> sums = sums_of(program, t, part);
    double size = 0;
    for (const Matrix& own : sums) {
      for (const double value : own) size = std::max(size, std::fabs(value));
    }
    Matrix left(rank * rows);  // transposed
    for (std::size_t k = 0; k < rank; ++k) {
      const float* const right = rights_[t].data() + part.right + k * columns;
      for (std::size_t i = 0; i < rows; ++i) {
        for (const Matrix& own : sums) {
          for (std::size_t j = 0; j < columns; ++j) {
            left[k * rows + i] += own[i * columns + j] * double(right[j]);
          }
        }
      }
    }
    // Numbers that are not normal may count as zero.
    const double allowed = 1e-3 * size + 1e-36;
    // Where columns nearly span each other, rounding alone decides on their directions.
    const bool clear = orthonormalise_rows(left, rank, rows) > 1e-2;
    Matrix result(part.count);
    for (int r = 0; r < case_.ranks; ++r) {
      const Matrix sent = projected(sums[at(r)], left, part.shape);
      const std::vector<float> rest = program.residual(r, t);
      for (std::size_t i = 0; i < part.count; ++i) {
        result[i] += sent[i];
        const double kept = double(rest[part.begin + i]);
        const double expected = sums[at(r)][i] - sent[i];
        if (clear && std::fabs(kept - expected) > allowed) {
          return fmt::format("rank {}, element {}: {} is left and not {}", r, i, kept, expected);
        }
      }
    }
    for (std::size_t i = 0; i < part.count; ++i) {
      const double found = double(program.result(0, t)[part.begin + i]) * double(divisor());
      if (clear && std::fabs(found - result[i]) > allowed * case_.ranks) {
        return fmt::format("element {}: {} and not {}", i, found, result[i]);
      }
    }
    return {};
  }

  // The columns' part in the space that the rows of `left` span.
  static Matrix projected(const Matrix& matrix, const Matrix& left, const FactorShape& shape) {
    const auto [rows, columns, rank] = shape;
    Matrix sent(rows * columns);
    for (std::size_t k = 0; k < rank; ++k) {
      for (std::size_t j = 0; j < columns; ++j) {
        double along = 0;
        for (std::size_t i = 0; i < rows; ++i)
          along += left[k * rows + i] * matrix[i * columns + j];
        for (std::size_t i = 0; i < rows; ++i) sent[i * columns + j] += left[k * rows + i] * along;
      }
    }
    return sent;
  }

  SparseCase case_;
  std::vector<std::vector<std::vector<float>>> rests_;  // by tensor and rank
  std::vector<std::vector<float>> rights_;              // by tensor
};

}  // namespace

std::unique_ptr<SchemeReference> low_rank_reference(const SparseCase& c) {
  return std::make_unique<LowRankReference>(c);
}

}  // namespace pith::test
