// DEFT against its authors' algorithm bit for bit, and what every scheme must keep.
#include <algorithm>
#include <limits>
#include <set>

#include "collectives/exdyna_cost.hpp"
#include "compress/deft_plan.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/hard_gradients.hpp"
#include "tests/reference/deft_twin.hpp"

namespace pith::test {

namespace {

std::vector<float> joined(const std::function<const std::vector<float>&(std::size_t)>& of,
                          std::size_t tensors) {
  std::vector<float> all;
  for (std::size_t t = 0; t < tensors; ++t) {
    const std::vector<float>& one = of(t);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

std::string compare_step(SparseProgram& program, const DeftTwin& twin) {
  const SparseCase& c = program.sparse_case();
  const std::size_t tensors = c.counts.size();
  std::vector<std::size_t> taken;
  std::size_t begin = 0;
  for (std::size_t t = 0; t < tensors; ++t) {
    PairList& list = program.compressor(0, t).taken();
    for (std::size_t i = 0; i < list.count(); ++i) taken.push_back(begin + *list.indices(i));
    begin += c.counts[t];
  }
  if (taken != twin.moved) return "other indices";
  const auto result = [&](std::size_t t) -> const std::vector<float>& {
    return program.result(0, t);
  };
  if (joined(result, tensors) != twin.result) return "another result";
  for (int r = 0; r < c.ranks; ++r) {
    std::vector<float> residual;
    std::size_t elected = 0;
    for (std::size_t t = 0; t < tensors; ++t) {
      const std::vector<float> one = program.residual(r, t);
      residual.insert(residual.end(), one.begin(), one.end());
      elected += program.compressor(r, t).stats.selected_local;
    }
    const auto at = static_cast<std::size_t>(r);
    if (residual != twin.residuals[at]) return fmt::format("rank {}: another residual", r);
    if (elected != twin.elected[at].size()) return fmt::format("rank {}: another number", r);
  }
  return {};
}

struct Walk {
  Change change = {};
  std::vector<int> order = {};  // of the ranks; none: by rank
};

std::string run_beside_twin(SparseCase c, int steps, const Walk& walk = {}) {
  c.integers = true;  // whose squares and sums are exact
  SparseProgram program(c);
  World world(world_of(c));
  if (!walk.order.empty()) world.set_order(RankOrder(walk.order));
  DeftTwin twin(c.counts, c.ranks, Spec::parse(c.spec)->density);
  for (int step = 0; step < steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    if (walk.change) walk.change(program, step);
    std::vector<std::vector<float>> gradients;
    for (int r = 0; r < c.ranks; ++r) {
      const auto gradient = [&](std::size_t t) -> const std::vector<float>& {
        return program.gradient(r, t);
      };
      gradients.push_back(joined(gradient, c.counts.size()));
    }
    std::string failure = program.step(world);
    twin.run(gradients);
    if (failure.empty()) failure = compare_step(program, twin);
    if (!failure.empty()) return fmt::format("{}, step {}: {}", describe(c), step, failure);
  }
  return world.leaks();
}

SparseCase case_of(int ranks, std::vector<std::size_t> counts, const std::string& rest) {
  SparseCase c;
  c.ranks = ranks;
  c.counts = std::move(counts);
  c.spec = "deft:" + rest;
  return c;
}

// Gradients given = results delivered + residuals.
std::string conserve(const SparseCase& c, int steps, double tolerance) {
  SparseProgram program(c);
  World world(world_of(c));
  std::vector<std::vector<double>> balance;
  for (const std::size_t count : c.counts) balance.emplace_back(count);
  for (int step = 0; step < steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    std::string failure = program.step(world);
    if (!failure.empty()) return failure;
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      for (std::size_t i = 0; i < c.counts[t]; ++i) {
        for (int r = 0; r < c.ranks; ++r) balance[t][i] += double(program.gradient(r, t)[i]);
        balance[t][i] -= double(program.result(0, t)[i]);
        double left = balance[t][i];
        for (int r = 0; r < c.ranks; ++r) left -= double(program.residual(r, t)[i]);
        if (std::fabs(left) > tolerance) {
          return fmt::format("{}, step {}, tensor {}, element {}: {} is lost", describe(c), step, t,
                             i, left);
        }
      }
    }
  }
  return world.leaks();
}

}  // namespace

TEST_CASE("DEFT is its authors', bit for bit", "[sparse][deft]") {
  for (const int ranks : {1, 2, 3, 5, 8, 16, 17}) {
    for (const std::size_t count : {1, 5, 100, 5000}) {
      for (const char* density : {"0.001", "0.004", "0.011", "0.033", "0.05", "0.1", "0.5", "1"}) {
        const SparseCase c = case_of(ranks, {count}, fmt::format("density={}", density));
        CHECK(run_beside_twin(c, 2 * ranks + 3) == "");
      }
    }
  }
  CHECK(run_beside_twin(case_of(4, {200000}, "density=0.001"), 6) == "");
}

TEST_CASE("gradients that leave DEFT little choice", "[sparse][deft]") {
  for (const Change& change : hard_gradients()) {
    for (const std::size_t count : {100, 40000}) {
      for (const char* density : {"0.01", "0.2"}) {
        const SparseCase c = case_of(3, {count}, fmt::format("density={}", density));
        CHECK(run_beside_twin(c, 5, {.change = change}) == "");
      }
    }
  }
}

TEST_CASE("in any order of the ranks DEFT's bins are those of its authors", "[sparse][deft]") {
  CHECK(run_beside_twin(case_of(4, {5000}, "density=0.01"), 9, {.order = {2, 3, 1, 0}}) == "");
  CHECK(run_beside_twin(case_of(4, {300, 40, 7}, "density=0.1"), 9, {.order = {3, 0, 1, 2}}) == "");
}

TEST_CASE("in a group every tensor is a layer of DEFT", "[sparse][deft]") {
  for (const int ranks : {1, 2, 3, 5, 8, 16}) {
    for (const char* density : {"0.01", "0.3"}) {
      const SparseCase c =
          case_of(ranks, {10, 0, 3000, 3, 500, 1, 64}, fmt::format("density={}", density));
      CHECK(run_beside_twin(c, 2 * ranks + 3) == "");
    }
  }
  CHECK(run_beside_twin(case_of(3, {0, 0}, "density=0.1"), 2) == "");
}

TEST_CASE("DEFT loses nothing, whatever the values", "[sparse][deft]") {
  for (const int ranks : {1, 2, 5, 8}) {
    for (const char* keys :
         {"", ",values=bf16", ",values=f16,reduction=tree", ",reduction=ring", ",reduction=tree"}) {
      const SparseCase c =
          case_of(ranks, {10, 0, 3000, 3, 5000, 1}, fmt::format("density=0.02{}", keys));
      CHECK(conserve(c, 6, 1e-5) == "");
    }
  }
}

TEST_CASE("no element is elected twice by DEFT, and each bin has its owner", "[sparse][deft]") {
  const SparseCase c = case_of(5, {4000, 700, 60}, "density=0.05");
  SparseProgram program(c);
  World world(world_of(c));
  for (std::uint64_t step = 0; step < 10; ++step) {
    program.draw(step);
    REQUIRE(program.step(world) == "");
    std::size_t elected = 0;
    std::size_t moved = 0;
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      PairList& taken = program.compressor(0, t).taken();
      const std::set<std::uint32_t> distinct(taken.indices(), taken.indices() + taken.count());
      CHECK(distinct.size() == taken.count());
      moved += taken.count();
      for (int r = 0; r < c.ranks; ++r) {
        elected += program.compressor(r, t).stats.selected_local;
      }
    }
    CHECK(elected == moved);
    CHECK(program.compressor(0).stats.imbalance >= 1);
    CHECK(program.compressor(0).stats.imbalance < 3);
    CHECK(program.compressor(0).stats.algorithm == "deft_direct");
  }
}

TEST_CASE("DEFT and numbers that are not finite", "[sparse][deft]") {
  for (const char* keys : {"", ",nonfinite=drop", ",values=bf16", ",reduction=ring"}) {
    const SparseCase c = case_of(3, {300, 40}, fmt::format("density=0.1{}", keys));
    const bool drops = Spec::parse(c.spec)->drops_nonfinite;
    for (const std::size_t where : {std::size_t{0}, std::size_t{170}, std::size_t{299}}) {
      SparseProgram program(c);
      World world(world_of(c));
      for (std::uint64_t step = 0; step < 3; ++step) {
        program.draw(step);
        const std::vector<float> before = program.residual(1);
        if (step == 1) program.gradient(1)[where] = std::numeric_limits<float>::quiet_NaN();
        REQUIRE(program.step(world) == "");
        const auto is_nan = [](float x) { return x != x; };
        const bool all = std::ranges::all_of(program.result(2, 1), is_nan);
        CHECK(all == (step == 1 && !drops));
        CHECK(std::ranges::any_of(program.result(0), is_nan) == all);
        if (!all) continue;
        const std::vector<float> after = program.residual(1);
        for (std::size_t i = 0; i < after.size(); ++i) {
          const float given = i == where ? 0 : program.gradient(1)[i];
          REQUIRE(after[i] == before[i] + given);
        }
      }
    }
  }
}

TEST_CASE("DEFT costs what its model says", "[sparse][deft][cost]") {
  constexpr std::size_t count = 200000;
  const LinkCost link{1e-5, 1e-8, 0};
  for (const int ranks : {2, 3, 4, 8, 13}) {
    for (const char* keys : {"density=0.05", "density=0.01,values=bf16"}) {
      const SparseCase c = case_of(ranks, {count}, keys);
      SparseProgram program(c);
      SimConfig config;
      config.link = {link.alpha, link.beta};
      World world(world_of(c, config));
      for (std::uint64_t step = 0; step < 4; ++step) {
        program.draw(step);
        REQUIRE(program.step(world) == "");
      }
      const CompressorStats& stats = program.compressor(0).stats;
      ExdynaShape shape{.ranks = ranks, .count = count};
      shape.density = static_cast<double>(stats.selected_union) / count;
      shape.imbalance = stats.imbalance;
      shape.value_bits = 8 * static_cast<double>(size_of(Spec::parse(c.spec)->values));
      const double expected =
          deft_cost(shape, deft_pieces(count, count, static_cast<std::size_t>(ranks)), link);
      INFO(describe(c) << ": " << world.elapsed_s() << " s, expected " << expected);
      CHECK(world.elapsed_s() / expected == Approx(1).margin(0.05));
    }
  }
}

}  // namespace pith::test
