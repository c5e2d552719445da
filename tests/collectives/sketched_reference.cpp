#include "tests/collectives/sketched_reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "compress/scheme.hpp"
#include "core/mix.hpp"

namespace pith::test {

namespace {

// Algorithm 1 of the paper in float64, from what the ranks had before it. Rows whose norms rounding
// could have put in another order may be elected one for another.
class SketchedReference final : public SchemeReference {
 public:
  explicit SketchedReference(const SparseCase& c) : case_(c), spec_(*Spec::parse(c.spec)) {
    for (const std::size_t count : c.counts) {
      sums_.emplace_back(static_cast<std::size_t>(c.ranks), std::vector<float>(count));
    }
  }

  std::string check(SparseProgram& program) override {
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      std::string failure = check_tensor(program, t);
      if (!failure.empty()) return fmt::format("tensor {}: {}", t, failure);
    }
    return {};
  }

 private:
  // What a row's sketch says of it, and how large that might have been.
  struct Row {
    double norm = 0;
    double most = 0;
    bool elected = false;
  };

  std::string check_tensor(SparseProgram& program, std::size_t t) {
    for (int r = 0; r < case_.ranks; ++r) {
      std::vector<float>& own = sums_[t][static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < own.size(); ++i) own[i] += program.gradient(r, t)[i];
    }
    const Compressor& compressor = program.compressor(0, t);
    const LowRankLayout& layout = *compressor.low_rank.layout;
    std::vector<float> right(layout.right_count());
    draw_right(layout, mix(mix(mix(0, spec_.seed), compressor.step - 1), t), right.data());
    std::vector<bool> taken(case_.counts[t]);
    PairList& pairs = program.compressor(0, t).taken();
    for (std::size_t i = 0; i < pairs.count(); ++i) taken[*pairs.indices(i)] = true;
    for (const LowRankPart& part : layout.parts()) {
      std::string failure = part.is_factored() ? check_matrix(t, part, right, taken)
                            : all_of(taken, part.begin, part.count) ? ""
                                                                    : "not sent whole";
      if (!failure.empty()) return failure;
    }
    return check_values(program, t, taken);
  }

  static bool all_of(const std::vector<bool>& taken, std::size_t begin, std::size_t count) {
    const auto first = taken.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::find(first, first + static_cast<std::ptrdiff_t>(count), false) ==
           first + static_cast<std::ptrdiff_t>(count);
  }

  Row row_of(std::size_t t, const LowRankPart& part, std::span<const float> right,
             std::size_t i) const {
    const std::size_t columns = part.shape.columns;
    Row row;
    for (std::size_t k = 0; k < part.shape.rank; ++k) {
      double sum = 0;
      double size = 0;
      for (const std::vector<float>& own : sums_[t]) {
        for (std::size_t j = 0; j < columns; ++j) {
          const double term = double(own[part.begin + i * columns + j]) *
                              double(right[part.right + k * columns + j]);
          sum += term;
          size += std::fabs(term);
        }
      }
      row.norm += sum * sum;
      row.most += size * size;
    }
    return {std::sqrt(row.norm), std::sqrt(row.most)};
  }

  std::string check_matrix(std::size_t t, const LowRankPart& part, std::span<const float> right,
                           const std::vector<bool>& taken) const {
    const std::size_t columns = part.shape.columns;
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    double rounding = 0;
    std::size_t elected = 0;
    for (std::size_t i = 0; i < part.shape.rows; ++i) {
      const Row row = row_of(t, part, right, i);
      rounding = std::max(rounding, 1e-5 * row.most);
      const std::size_t begin = part.begin + i * columns;
      if (taken[begin]) {
        if (!all_of(taken, begin, columns)) return fmt::format("row {} is in parts", i);
        least = std::min(least, row.norm);
        ++elected;
      } else {
        most = std::max(most, row.norm);
      }
    }
    const std::size_t k = elected_of(spec_.density, part.shape.rows);
    if (elected != k) return fmt::format("{} rows are elected, expected {}", elected, k);
    if (least + rounding < most) return fmt::format("a row of {} before one of {}", least, most);
    return {};
  }

  std::string check_values(SparseProgram& program, std::size_t t, const std::vector<bool>& taken) {
    std::vector<float> sum(taken.size());
    for (int r = 0; r < case_.ranks; ++r) {
      std::vector<float>& own = sums_[t][static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (taken[i]) sum[i] += std::exchange(own[i], 0.0f);
      }
      if (!spec_.feedback) std::ranges::fill(own, 0.0f);
      if (program.residual(r, t) != own) return fmt::format("rank {}: another residual", r);
    }
    for (float& value : sum) value /= case_.average ? float(case_.ranks) : 1.0f;
    return program.result(0, t) == sum ? "" : "another result";
  }

  SparseCase case_;
  Spec spec_;
  std::vector<std::vector<std::vector<float>>>
      sums_;  // by tensor and rank: residuals, between calls
};

}  // namespace

std::unique_ptr<SchemeReference> sketched_reference(const SparseCase& c) {
  if (Spec::parse(c.spec)->values != DType::f32) return nullptr;
  return std::make_unique<SketchedReference>(c);
}

}  // namespace pith::test
