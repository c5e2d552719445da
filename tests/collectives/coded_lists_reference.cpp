#include "tests/collectives/coded_lists_reference.hpp"

#include <algorithm>
#include <cmath>

#include "compress/scheme.hpp"
#include "tests/collectives/largest.hpp"

namespace pith::test {

namespace {

class CodedListsReference final : public SchemeReference {
 public:
  explicit CodedListsReference(const SparseCase& c)
      : case_(c), spec_(*Spec::parse(c.spec)), residuals_(static_cast<std::size_t>(c.ranks)) {
    for (auto& own : residuals_) {
      for (const std::size_t count : c.counts) own.emplace_back(count);
    }
    const int levels = (1 << (list_coding_of(spec_)->bits - 1)) - 1;
    most_lost_ = 0.5f / static_cast<float>(levels);
  }

  std::string check(SparseProgram& program) override {
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      Sums sums(case_.counts[t]);
      for (int r = 0; r < case_.ranks; ++r) {
        std::string failure = add_rank(program, r, t, sums);
        if (!failure.empty()) return fmt::format("rank {}, {}", r, failure);
      }
      const float parts = case_.average ? static_cast<float>(case_.ranks) : 1;
      for (std::size_t i = 0; i < case_.counts[t]; ++i) {
        const float off = std::fabs(program.result(0, t)[i] * parts - sums.values[i]);
        if (!(off <= sums.allowed[i])) return fmt::format("element {}: off by {}", i, off);
      }
    }
    return {};
  }

 private:
  struct Sums {
    explicit Sums(std::size_t count) : values(count), allowed(count) {}
    std::vector<float> values;
    std::vector<float> allowed;  // by how much they may be off
  };

  // What is elected leaves, but for what coding loses of it, half a level; all else stays.
  std::string add_rank(SparseProgram& program, int rank, std::size_t t, Sums& sums) {
    std::vector<float>& own = residuals_[static_cast<std::size_t>(rank)][t];
    for (std::size_t i = 0; i < own.size(); ++i) own[i] += program.gradient(rank, t)[i];
    std::vector<float> magnitudes(own.size());
    std::ranges::transform(own, magnitudes.begin(), [](float sum) { return std::fabs(sum); });
    const float most = own.empty() ? 0 : *std::ranges::max_element(magnitudes);
    const float bound = most * (most_lost_ + 1e-6f) + 1e-36f;  // a scale may underflow
    std::vector<float> left = program.residual(rank, t);
    for (const std::size_t i : largest(magnitudes, elected_of(spec_.density, own.size()))) {
      if (!(std::fabs(left[i]) <= bound)) return fmt::format("element {}: {} is left", i, left[i]);
      const float rounding = 1e-6f * magnitudes[i];
      sums.values[i] += own[i] - left[i];
      sums.allowed[i] += rounding + (spec_.feedback ? 0 : bound);
      own[i] = left[i];
    }
    if (!spec_.feedback) std::ranges::fill(own, 0.0f);
    return left == own ? "" : "another residual";
  }

  SparseCase case_;
  Spec spec_;
  float most_lost_ = 0;                                     // of the largest magnitude
  std::vector<std::vector<std::vector<float>>> residuals_;  // by rank and tensor
};

}  // namespace

std::unique_ptr<SchemeReference> coded_lists_reference(const SparseCase& c) {
  return std::make_unique<CodedListsReference>(c);
}

}  // namespace pith::test
