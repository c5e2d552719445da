// A scheme that the library does not have, added as the guide says: it is known by its name, and
// does what every scheme must.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/collectives/scheme_conformance.hpp"

namespace pith::test {

namespace {

// Its election cannot be told from outside but for what all ranks must agree on: what has left one
// rank has left all, k elements of it, and that is what has arrived.
class RandomKReference final : public SchemeReference {
 public:
  explicit RandomKReference(const SparseCase& c) : case_(c), spec_(*Spec::parse(c.spec)) {
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
        return fmt::format("{} drawn, expected {}", taken.count(), k);
      std::vector<float> sum(count);
      for (int r = 0; r < case_.ranks; ++r) {
        std::vector<float>& own = residuals_[static_cast<std::size_t>(r)][t];
        for (std::size_t i = 0; i < count; ++i) own[i] += program.gradient(r, t)[i];
        for (std::size_t i = 0; i < k; ++i) {
          sum[*taken.indices(i)] += std::exchange(own[*taken.indices(i)], 0.0f);
        }
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

const SchemeTest random_k = {"random-k",
                             {"", "seed=7", "values=bf16", "values=f16"},
                             [](const SparseCase& c) -> std::unique_ptr<SchemeReference> {
                               if (Spec::parse(c.spec)->values != DType::f32) return nullptr;
                               return std::make_unique<RandomKReference>(c);
                             },
                             nullptr};

SparseCase case_of(const std::string& variant, int ranks, std::vector<std::size_t> counts) {
  SparseCase c;
  c.spec = spec_of(random_k, variant, 0.05);
  c.ranks = ranks;
  c.counts = std::move(counts);
  return c;
}

}  // namespace

TEST_CASE("the table has the scheme, and messages name it") {
  const auto all = schemes();
  CHECK(all.back()->name == "random-k");
  CHECK(Spec::parse("random-k:seed=3")->text().starts_with("random-k:density=0.01,"));
  const std::string refusal = Spec::parse("topj").error().message();
  CHECK(refusal.find("deft, random-k") != std::string::npos);
  const Spec spec = *Spec::parse("random-k:seed=3,values=f16");
  CHECK(Spec::unpack(spec.pack()) == spec);
}

TEST_CASE("the scheme sums what it draws, beside its reference") {
  for (const std::string& variant : random_k.variants) {
    for (const int ranks : {1, 2, 3, 8}) {
      for (const std::vector<std::size_t>& counts :
           std::vector<std::vector<std::size_t>>{{1}, {100}, {70000}, {10, 0, 3000, 1}, {0}}) {
        SparseCase c = case_of(variant, ranks, counts);
        c.average = ranks == 3;
        CHECK(check_beside_reference(random_k, c, {.steps = 6}) == "");
      }
    }
  }
}

TEST_CASE("the scheme keeps what every scheme must") {
  for (const std::string& variant : random_k.variants) {
    CHECK(check_conserved(case_of(variant, 4, {10, 0, 3000, 1}), 6) == "");
    CHECK(check_nonfinite(case_of(variant, 3, {300, 40}), 1, 170) == "");
    CHECK(check_saved(case_of(variant, 3, {2000, 0, 70})) == "");
    CHECK(check_interrupted(case_of(variant, 3, {60, 0, 20}), 2, 1) == "");
  }
}

TEST_CASE("every element is drawn in time, and none more often than its share") {
  SparseProgram program(case_of("", 1, {1000}));
  World world(world_of(program.sparse_case()));
  std::vector<int> times(1000);
  for (std::uint64_t step = 0; step < 400; ++step) {
    program.draw(step);
    REQUIRE(program.step(world) == "");
    PairList& taken = program.compressor(0).taken();
    for (std::size_t i = 0; i < taken.count(); ++i) ++times[*taken.indices(i)];
  }
  CHECK(*std::min_element(times.begin(), times.end()) > 0);
  CHECK(*std::max_element(times.begin(), times.end()) < 60);  // 20 on average
}

}  // namespace pith::test
