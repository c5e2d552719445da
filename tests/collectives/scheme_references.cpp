// The table of schemes under test, and their plain references.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "collectives/patterns.hpp"
#include "compress/ar_topk_scheme.hpp"
#include "compress/exdyna_scheme.hpp"
#include "compress/topk_scheme.hpp"
#include "core/mix.hpp"
#include "kernels/coded_values.hpp"
#include "tests/collectives/ar_topk_reference.hpp"
#include "tests/collectives/atomo_reference.hpp"
#include "tests/collectives/coded_lists_reference.hpp"
#include "tests/collectives/coded_reference.hpp"
#include "tests/collectives/common_reference.hpp"
#include "tests/collectives/gtopk_reference.hpp"
#include "tests/collectives/kept_reference.hpp"
#include "tests/collectives/largest.hpp"
#include "tests/collectives/low_rank_reference.hpp"
#include "tests/collectives/rounded.hpp"
#include "tests/collectives/rule_reference.hpp"
#include "tests/collectives/scheme_conformance.hpp"
#include "tests/collectives/sketched_reference.hpp"
#include "tests/collectives/varying_reference.hpp"
#include "tests/reference/deft_twin.hpp"
#include "tests/reference/exdyna_twin.hpp"

namespace pith::test {

namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// --- none, bf16 ---

// In rank order, as bf16 is defined; `none` may sum in any order.
class DenseReference final : public SchemeReference {
 public:
  explicit DenseReference(const SparseCase& c) : case_(c), values_(Spec::parse(c.spec)->values) {}

  std::string check(SparseProgram& program) override {
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      for (std::size_t i = 0; i < case_.counts[t]; ++i) {
        const float expected = sum_of(program, t, i);
        const float found = program.result(0, t)[i];
        const bool right = rounds() ? found == expected
                                    : std::fabs(found - expected) <= rounding_of(program, t, i);
        if (!right)
          return fmt::format("tensor {}, element {}: {} and not {}", t, i, found, expected);
      }
      for (int r = 0; r < case_.ranks; ++r) {
        if (!program.compressor(r, t).residual_is_zero()) return "something is left";
      }
    }
    return {};
  }

 private:
  bool rounds() const { return values_ != DType::f32; }
  // By how much two sums can differ whose order is not the same: each addition rounds by half a
  // unit of its result, which is no larger than all inputs together.
  float rounding_of(SparseProgram& program, std::size_t tensor, std::size_t i) const {
    float all = 0;
    for (int r = 0; r < case_.ranks; ++r) all += std::fabs(program.gradient(r, tensor)[i]);
    const auto ranks = static_cast<float>(case_.ranks);
    return std::numeric_limits<float>::epsilon() * all * (case_.average ? 1 : ranks);
  }
  float sum_of(SparseProgram& program, std::size_t tensor, std::size_t i) const {
    float sum = 0;
    for (int r = 0; r < case_.ranks; ++r) {
      const float value = rounded(program.gradient(r, tensor)[i], values_);
      sum = r == 0 ? value : sum + value;
    }
    if (case_.ranks > 1) sum = rounded(sum, values_);
    return case_.average ? sum / float(case_.ranks) : sum;
  }

  SparseCase case_;
  DType values_;
};

// --- top-k, dgc ---

float momentum_of(const Spec& spec) {
  return corrects_momentum(spec) ? spec.scheme->correction(spec).momentum : 0.0f;
}

class TopkReference final : public SchemeReference {
 public:
  explicit TopkReference(const SparseCase& c) : case_(c), spec_(*Spec::parse(c.spec)) {
    for (auto& own : residuals_) own.clear();
    residuals_.resize(at(c.ranks));
    for (auto& own : residuals_) {
      for (const std::size_t count : c.counts) own.emplace_back(count);
    }
    velocities_ = residuals_;
  }

  std::string check(SparseProgram& program) override {
    follow_step(spec_, step_++);
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      std::vector<float> sum(case_.counts[t]);
      for (int r = 0; r < case_.ranks; ++r) {
        std::vector<float>& own = residuals_[at(r)][t];
        std::vector<float>& velocity = velocities_[at(r)][t];
        const float momentum = momentum_of(spec_);
        for (std::size_t i = 0; i < own.size(); ++i) {
          velocity[i] = momentum * velocity[i] + program.gradient(r, t)[i];
          own[i] += velocity[i];
        }
        std::vector<bool> left(own.size());
        const std::vector<float> elected = elect(own, left);
        for (std::size_t i = 0; i < own.size(); ++i) {
          sum[i] += elected[i];
          if (left[i]) velocity[i] = 0;
        }
        if (!spec_.feedback) std::fill(own.begin(), own.end(), 0.0f);
        if (program.residual(r, t) != own) return fmt::format("rank {}: another residual", r);
      }
      for (float& value : sum) value /= case_.average ? float(case_.ranks) : 1.0f;
      if (program.result(0, t) != sum) return "another result";
    }
    return {};
  }

 private:
  // Elects from `sums` as the definition says, and leaves the residual there.
  std::vector<float> elect(std::vector<float>& sums, std::vector<bool>& left) const {
    std::vector<float> magnitudes(sums.size());
    std::ranges::transform(sums, magnitudes.begin(), [](float sum) { return std::fabs(sum); });
    std::vector<float> elected(sums.size());
    for (const std::size_t i : largest(magnitudes, elected_of(spec_.density, sums.size()))) {
      elected[i] = rounded(sums[i], spec_.values);
      sums[i] -= elected[i];
      left[i] = true;
    }
    return elected;
  }

  SparseCase case_;
  Spec spec_;
  std::uint64_t step_ = 0;
  std::vector<std::vector<std::vector<float>>> residuals_;   // by rank and tensor
  std::vector<std::vector<std::vector<float>>> velocities_;  // of dgc; else the gradients
};

std::unique_ptr<SchemeReference> topk_reference(const SparseCase& c) {
  if (list_coding_of(*Spec::parse(c.spec))) return coded_lists_reference(c);
  return std::make_unique<TopkReference>(c);
}

// --- AR-Topk ---

class LeaderReference final : public SchemeReference {
 public:
  explicit LeaderReference(const SparseCase& c) : reference_(c) {}
  std::string check(SparseProgram& program) override { return reference_.check(program); }

 private:
  ArTopkReference reference_;
};

// Lagged scores come from a histogram, those of 16-bit values from before they are rounded: of a
// few elements they tell too little to say who leads.
std::unique_ptr<SchemeReference> leader_reference(const SparseCase& c) {
  constexpr std::size_t few = 30;
  const Spec spec = *Spec::parse(c.spec);
  const bool counts = election_of(spec) == Election::variance_lagged && spec.values != DType::f32;
  const std::size_t most = *std::max_element(c.counts.begin(), c.counts.end());
  if (counts && elected_of(spec.density, most) < few) return nullptr;
  return std::make_unique<LeaderReference>(c);
}

// --- ExDyna, MiCRO ---

// By the authors' rules; of every tensor for itself.
class ExdynaReference final : public SchemeReference {
 public:
  explicit ExdynaReference(const SparseCase& c) : case_(c) {
    const Spec spec = *Spec::parse(c.spec);
    for (const std::size_t count : c.counts) {
      twins_.emplace_back(count, c.ranks, spec.density, rule_of(spec) == Rule::intended,
                          spec.scheme == &micro_scheme);
    }
  }

  std::string check(SparseProgram& program) override {
    std::string failure;
    for (std::size_t t = 0; t < twins_.size() && failure.empty(); ++t) {
      if (case_.counts[t] == 0) continue;
      std::vector<const std::vector<float>*> gradients;
      for (int r = 0; r < case_.ranks; ++r) gradients.push_back(&program.gradient(r, t));
      twins_[t].run(gradients);
      failure = compare_step(program, t);
      twins_[t].prepare();
      if (failure.empty()) failure = compare_control(program, t);
    }
    return failure;
  }

 private:
  // What all ranks hold of partitions and threshold for the next step.
  std::string compare_control(SparseProgram& program, std::size_t t) const {
    const ExdynaTwin& twin = twins_[t];
    for (int r = 0; r < case_.ranks; ++r) {
      const ExdynaControl& control = program.compressor(r, t).exdyna;
      if (control.threshold().lambda() != twin.lambda) {
        return fmt::format("rank {}: lambda is {}, expected {}", r, control.threshold().lambda(),
                           twin.lambda);
      }
      for (int p = 0; p < case_.ranks; ++p) {
        if (control.partition().begin(at(p)) == twin.begin(p)) continue;
        return fmt::format("rank {}: partition {} begins at {}, expected {}", r, p,
                           control.partition().begin(at(p)), twin.begin(p));
      }
    }
    return {};
  }

  std::string compare_step(SparseProgram& program, std::size_t t) const {
    const ExdynaTwin& twin = twins_[t];
    const auto counts = program.compressor(0, t).exdyna.by_partition();
    for (int p = 0; p < case_.ranks; ++p) {
      if (static_cast<long>(counts[at(p)]) == twin.counts[at(p)]) continue;
      return fmt::format("partition {}: {} elected, expected {}", p, counts[at(p)],
                         twin.counts[at(p)]);
    }
    PairList& taken = program.compressor(0, t).taken();
    if (taken.count() != twin.elected.size() ||
        !std::equal(twin.elected.begin(), twin.elected.end(), taken.indices())) {
      return "other indices";
    }
    for (std::size_t i = 0; i < twin.result.size(); ++i) {
      const float expected = twin.result[i] / (case_.average ? float(case_.ranks) : 1.0f);
      if (program.result(0, t)[i] != expected) return "another result";
    }
    for (int r = 0; r < case_.ranks; ++r) {
      if (program.residual(r, t) != twin.residuals[at(r)]) {
        return fmt::format("rank {}: another residual", r);
      }
    }
    return {};
  }

  SparseCase case_;
  std::vector<ExdynaTwin> twins_;
};

std::unique_ptr<SchemeReference> exdyna_reference(const SparseCase& c) {
  const Spec spec = *Spec::parse(c.spec);
  const bool is_authors =
      rule_of(spec) != Rule::quantile && partition_of(spec) != Partition::prefix;
  if (!is_authors || spec.values != DType::f32) return nullptr;
  return std::make_unique<ExdynaReference>(c);
}

// --- DEFT ---

class DeftReference final : public SchemeReference {
 public:
  explicit DeftReference(const SparseCase& c)
      : case_(c), twin_(c.counts, c.ranks, Spec::parse(c.spec)->density) {}

  std::string check(SparseProgram& program) override {
    std::vector<std::vector<float>> gradients;
    for (int r = 0; r < case_.ranks; ++r) {
      gradients.push_back(joined([&](std::size_t t) { return program.gradient(r, t); }));
    }
    twin_.run(gradients);
    std::vector<std::size_t> taken;
    std::size_t begin = 0;
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      PairList& list = program.compressor(0, t).taken();
      for (std::size_t i = 0; i < list.count(); ++i) taken.push_back(begin + *list.indices(i));
      begin += case_.counts[t];
    }
    if (taken != twin_.moved) return "other indices";
    std::vector<float> result = twin_.result;
    for (float& value : result) value /= case_.average ? float(case_.ranks) : 1.0f;
    if (joined([&](std::size_t t) { return program.result(0, t); }) != result) {
      return "another result";
    }
    return compare_ranks(program);
  }

 private:
  std::vector<float> joined(const std::function<std::vector<float>(std::size_t)>& of) const {
    std::vector<float> all;
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      const std::vector<float> one = of(t);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  std::string compare_ranks(SparseProgram& program) const {
    for (int r = 0; r < case_.ranks; ++r) {
      const auto residual = [&](std::size_t t) { return program.residual(r, t); };
      if (joined(residual) != twin_.residuals[at(r)]) {
        return fmt::format("rank {}: another residual", r);
      }
      std::size_t elected = 0;
      for (std::size_t t = 0; t < case_.counts.size(); ++t) {
        elected += program.compressor(r, t).stats.selected_local;
      }
      if (elected != twin_.elected[at(r)].size()) return fmt::format("rank {}: another number", r);
    }
    return {};
  }

  SparseCase case_;
  DeftTwin twin_;
};

std::unique_ptr<SchemeReference> deft_reference(const SparseCase& c) {
  if (Spec::parse(c.spec)->values != DType::f32) return nullptr;
  return std::make_unique<DeftReference>(c);
}

// --- the table ---

template <class Reference>
std::unique_ptr<SchemeReference> make(const SparseCase& c) {
  return std::make_unique<Reference>(c);
}
bool in_another_order(const Spec& spec) { return spec.reduction != Reduction::direct; }

std::vector<std::string> leader_variants() {
  return {"election=staleness",
          "election=variance",
          "election=variance,score=raw",
          "election=variance-lagged",
          "election=variance-lagged,score=raw",
          "values=bf16",
          "election=variance,values=f16",
          "election=variance,score=raw,values=bf16",
          "election=variance-lagged,values=bf16",
          "reduction=ring",
          "reduction=tree",
          "election=variance,reduction=tree",
          "election=variance-lagged,reduction=ring"};
}

const std::vector<SchemeTest>& table() {
  static const std::vector<SchemeTest> tests = {
      {"none", {""}, make<DenseReference>},
      {"bf16", {""}, make<DenseReference>},
      {"fp16", {"", "feedback=1,block=128"}, coded_reference},
      {"int8",
       {"", "block=128", "feedback=1", "map=dynamic", "map=dynamic,feedback=1,block=4096"},
       coded_reference},
      {"fp8", {"", "format=e5m2,block=512", "feedback=1,block=128"}, coded_reference},
      {"qsgd", {"", "bits=2", "bits=8,bucket=256,seed=7"}, coded_reference},
      {"terngrad", {"", "clip=1.5,bucket=128,seed=7"}, coded_reference},
      {"natural", {""}, coded_reference},
      {"sign", {""}, coded_reference},
      {"signum", {"", "momentum=0.5,seed=7"}, coded_reference},
      {"efsign", {"", "block=128"}, coded_reference},
      {"onebit", {"", "block=128"}, coded_reference},
      {"3lc", {"", "sparsity=1.75,block=128"}, coded_reference},
      {"bounded", {"", "abs=0.01", "rel=0.1,feedback=1", "abs=0.05,rel=0.5"}, varying_reference},
      {"lossless", {"", "level=3"}, varying_reference},
      {"powersgd", {"", "rank=1,start=2", "rank=6,seed=3"}, low_rank_reference},
      {"atomo", {"", "rank=1,side=64,seed=7"}, atomo_reference, nullptr, 4},
      {"topk",
       {"", "exchange=direct", "exchange=ring", "exchange=split", "exchange=recursive-doubling",
        "exchange=direct,values=bf16", "exchange=ring,values=f16", "exchange=split,values=bf16",
        "exchange=recursive-doubling,values=bf16", "feedback=0,values=f16",
        "exchange=direct,values=int4", "exchange=ring,values=int8", "feedback=0,values=int4"},
       topk_reference,
       [](const Spec& spec) { return exchange_of(spec) == Exchange::recursive_doubling; }},
      {"threshold", {"value=0.05", "value=0.1,values=bf16"}, threshold_reference},
      {"sidco", {"", "law=pareto,values=f16", "feedback=0"}, sidco_reference},
      {"dgc",
       {"", "momentum=0.5,warmup=3", "exchange=split,values=bf16", "exchange=ring,values=f16"},
       make<TopkReference>,
       nullptr,
       12,
       true},
      {"wangni", {"", "seed=7,values=bf16"}, wangni_reference, nullptr, 12, true},
      {"adaptive", {"", "values=f16", "feedback=0"}, adaptive_reference, nullptr, 12, true},
      {"spardl", {"", "values=bf16"}, kept_reference},
      {"ok-topk", {"", "values=f16", "feedback=0"}, kept_reference},
      {"gtopk", {"", "values=bf16", "values=f16", "feedback=0"}, gtopk_reference},
      {"randomk", {"", "seed=7", "values=bf16", "feedback=0"}, common_reference},
      {"arc-topk",
       {"", "sketch=1,seed=7", "sketch=9,feedback=0", "values=bf16"},
       sketched_reference},
      {"ar-topk", leader_variants(), leader_reference, in_another_order, 30},
      {"clt-k",
       {"", "beta=0.5", "beta=0.25,values=bf16", "reduction=ring"},
       leader_reference,
       in_another_order},
      {"exdyna",
       {"", "rule=released", "rule=intended", "partition=neighbour",
        "rule=released,partition=prefix", "values=bf16", "values=f16,reduction=tree",
        "rule=intended,reduction=ring", "reduction=ring", "reduction=tree"},
       exdyna_reference,
       in_another_order,
       100},
      {"micro",
       {"", "rule=released", "rule=intended", "values=bf16", "rule=intended,values=f16",
        "rule=released,reduction=tree", "reduction=ring"},
       exdyna_reference,
       in_another_order,
       100},
      {"deft",
       {"", "values=bf16", "values=f16,reduction=tree", "reduction=ring", "reduction=tree"},
       deft_reference,
       [](const Spec&) { return true; }},
  };
  return tests;
}

}  // namespace

// But those for which this build lacks something.
std::span<const SchemeTest> scheme_tests() {
  static const std::vector<SchemeTest> built = [] {
    std::vector<SchemeTest> tests = table();
    std::erase_if(tests, [](const SchemeTest& test) { return !Spec::parse(test.scheme); });
    return tests;
  }();
  return built;
}

}  // namespace pith::test
