#include "tests/collectives/rule_reference.hpp"

#include <algorithm>
#include <cmath>

#include "compress/thresholds/draw_key.hpp"
#include "compress/thresholds/sure_magnitude.hpp"
#include "compress/thresholds/threshold_keys.hpp"
#include "kernels/elections/elections.hpp"
#include "kernels/sparse_scalar.hpp"
#include "tests/collectives/largest.hpp"
#include "tests/collectives/rounded.hpp"

namespace pith::test {

namespace {

// What a rule makes of a rank's gradient plus residual.
struct Elected {
  std::vector<float> sent;
  std::string failure;  // empty is good
};

// Whatever the rule: results are the sums in rank order, and residuals what is left.
class RuleReference : public SchemeReference {
 public:
  explicit RuleReference(const SparseCase& c) : case_(c), spec_(*Spec::parse(c.spec)) {
    residuals_.resize(static_cast<std::size_t>(c.ranks));
    for (auto& own : residuals_) {
      for (const std::size_t count : c.counts) own.emplace_back(count);
    }
  }

  std::string check(SparseProgram& program) override {
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      std::vector<float> sum(case_.counts[t]);
      for (int r = 0; r < case_.ranks; ++r) {
        std::vector<float>& own = residuals_[static_cast<std::size_t>(r)][t];
        for (std::size_t i = 0; i < own.size(); ++i) own[i] += program.gradient(r, t)[i];
        const Elected elected = elect(program, r, t, own);
        if (!elected.failure.empty()) return fmt::format("rank {}: {}", r, elected.failure);
        for (std::size_t i = 0; i < own.size(); ++i) {
          sum[i] += elected.sent[i];
          own[i] = spec_.feedback ? own[i] - elected.sent[i] : 0.0f;
        }
        if (program.residual(r, t) != own) return fmt::format("rank {}: another residual", r);
      }
      for (float& value : sum) value /= case_.average ? float(case_.ranks) : 1.0f;
      if (program.result(0, t) != sum) return "another result";
    }
    ++step_;
    return {};
  }

 protected:
  // Of a tensor that may have no elements; `sums`: gradient plus residual.
  virtual Elected elect(SparseProgram& program, int rank, std::size_t t,
                        const std::vector<float>& sums) = 0;

  std::vector<float> from(const std::vector<float>& sums, float threshold) const {
    std::vector<float> sent(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (std::fabs(sums[i]) >= threshold) sent[i] = rounded(sums[i], spec_.values);
    }
    return sent;
  }

  SparseCase case_;
  Spec spec_;
  std::uint64_t step_ = 0;

 private:
  std::vector<std::vector<std::vector<float>>> residuals_;  // by rank and tensor
};

class ThresholdReference final : public RuleReference {
 public:
  using RuleReference::RuleReference;

 private:
  Elected elect(SparseProgram&, int, std::size_t, const std::vector<float>& sums) override {
    return {from(sums, value_of(spec_)), {}};
  }
};

MagnitudeHistogram histogram_of(const std::vector<float>& values) {
  MagnitudeHistogram histogram;
  kernels::scalar::histogram({values.data(), values.size(), &histogram});
  return histogram;
}

// What a rule makes of sums, but for their order of addition.
bool is_close(float a, float b) { return std::fabs(a - b) <= 1e-5f * std::fabs(b); }

// The threshold of the sums of all elements; that it is the law's is tested by itself.
class SidcoReference final : public RuleReference {
 public:
  explicit SidcoReference(const SparseCase& c) : RuleReference(c) {
    stages_.resize(static_cast<std::size_t>(c.ranks) * c.counts.size());
  }

 private:
  Elected elect(SparseProgram& program, int rank, std::size_t t,
                const std::vector<float>& sums) override {
    if (sums.empty()) return {};
    StageControl& stages = stages_[static_cast<std::size_t>(rank) * case_.counts.size() + t];
    const Compressor& compressor = program.compressor(rank, t);
    const float expected = fitted_threshold(histogram_of(sums), sums.size(), spec_.density,
                                            law_of(spec_), stages.stages);
    const float found = compressor.stats.threshold;
    if (!is_close(found, expected)) {
      return {{}, fmt::format("threshold {}, expected {}", found, expected)};
    }
    const auto elected =
        std::ranges::count_if(sums, [&](float sum) { return std::fabs(sum) >= found; });
    stages.saw(double(elected), double(elected_of(spec_.density, sums.size())),
               most_stages(spec_.density));
    if (!(compressor.stages == stages)) return {{}, "another number of stages"};
    return {from(sums, found), {}};
  }

  std::vector<StageControl> stages_;
};

// Draws by the plain twin of their kernel.
class WangniReference final : public RuleReference {
 public:
  using RuleReference::RuleReference;

 private:
  Elected elect(SparseProgram& program, int rank, std::size_t t,
                const std::vector<float>& sums) override {
    if (sums.empty()) return {};
    const auto k = double(elected_of(spec_.density, sums.size()));
    const float expected = sure_magnitude(histogram_of(sums), k);
    const float found = program.compressor(rank, t).stats.threshold;
    if (!is_close(found, expected)) return {{}, fmt::format("{} sure, not {}", found, expected)};
    std::vector<float> left = sums;
    std::vector<std::uint32_t> indices(sums.size());
    std::vector<float> values(sums.size());
    PassResult drawn;
    kernels::scalar::draw({left.data(), left.size(), found, draw_key(spec_.seed, step_, t, rank), 0,
                           indices.data(), values.data(), &drawn});
    Elected elected{std::vector<float>(sums.size()), {}};
    for (std::size_t i = 0; i < drawn.selected; ++i) {
      elected.sent[indices[i]] = rounded(values[i], spec_.values);
    }
    return elected;
  }
};

class AdaptiveReference final : public RuleReference {
 public:
  using RuleReference::RuleReference;

 private:
  Elected elect(SparseProgram&, int, std::size_t, const std::vector<float>& sums) override {
    Elected elected{std::vector<float>(sums.size()), {}};
    const std::size_t k = elected_of(spec_.density, sums.size());
    for (const float sign : {1.0f, -1.0f}) {
      std::vector<float> magnitudes(sums.size());
      for (std::size_t i = 0; i < sums.size(); ++i) {
        magnitudes[i] = sign * sums[i] > 0 ? sign * sums[i] : never_elected;
      }
      const std::vector<std::size_t> ours = largest(magnitudes, (k + 1) / 2);
      double sum = 0;
      for (const std::size_t i : ours) sum += double(sums[i]);
      const auto mean = static_cast<float>(sum / double(ours.size()));
      for (const std::size_t i : ours) elected.sent[i] = rounded(mean, spec_.values);
    }
    return elected;
  }
};

}  // namespace

std::unique_ptr<SchemeReference> wangni_reference(const SparseCase& c) {
  return std::make_unique<WangniReference>(c);
}

std::unique_ptr<SchemeReference> adaptive_reference(const SparseCase& c) {
  return std::make_unique<AdaptiveReference>(c);
}

std::unique_ptr<SchemeReference> threshold_reference(const SparseCase& c) {
  return std::make_unique<ThresholdReference>(c);
}

std::unique_ptr<SchemeReference> sidco_reference(const SparseCase& c) {
  return std::make_unique<SidcoReference>(c);
}

}  // namespace pith::test
