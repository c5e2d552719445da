#include "tests/collectives/common_reference.hpp"

#include <algorithm>
#include <utility>

namespace pith::test {

namespace {

// Its election cannot be told from outside but for what all ranks must agree on: what has left one
// rank has left all, k elements of it, and that is what has arrived.
class CommonReference final : public SchemeReference {
 public:
  explicit CommonReference(const SparseCase& c) : case_(c), spec_(*Spec::parse(c.spec)) {
    for (int r = 0; r < c.ranks; ++r) {
      auto& own = residuals_.emplace_back();
      for (const std::size_t count : c.counts) own.emplace_back(count);
    }
  }

  std::string check(SparseProgram& program) override {
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      PairList& taken = program.compressor(0, t).taken();
      const std::size_t count = case_.counts[t];
      const std::size_t k = count == 0 ? 0 : elected_of(spec_.density, count);
      if (count > 0 && taken.count() != k)
        return fmt::format("{} elected, expected {}", taken.count(), k);
      std::vector<float> sum(count);
      for (int r = 0; r < case_.ranks; ++r) {
        std::vector<float>& own = residuals_[static_cast<std::size_t>(r)][t];
        for (std::size_t i = 0; i < count; ++i) own[i] += program.gradient(r, t)[i];
        for (std::size_t i = 0; i < k; ++i) {
          sum[*taken.indices(i)] += std::exchange(own[*taken.indices(i)], 0.0f);
        }
        if (!spec_.feedback) std::ranges::fill(own, 0.0f);
        if (program.residual(r, t) != own) return fmt::format("rank {}: another residual", r);
      }
      for (float& value : sum) value /= case_.average ? float(case_.ranks) : 1.0f;
      if (program.result(0, t) != sum) return "another result";
    }
    return {};
  }

 private:
  SparseCase case_;
  Spec spec_;
  std::vector<std::vector<std::vector<float>>> residuals_;
};

}  // namespace

std::unique_ptr<SchemeReference> common_reference(const SparseCase& c) {
  if (Spec::parse(c.spec)->values != DType::f32) return nullptr;
  return std::make_unique<CommonReference>(c);
}

}  // namespace pith::test
