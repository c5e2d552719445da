// What merges of gtopk keep, who has what they drop, and what its tree costs. The rules for all
// schemes are in test_schemes.cpp.
#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/sparse/whole/gtopk_cost.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// One step of these gradients, by rank, each rank electing one element.
void step_of(SparseProgram& program, const std::vector<std::vector<float>>& gradients) {
  World world(world_of(program.sparse_case()));
  for (std::size_t r = 0; r < gradients.size(); ++r) {
    program.gradient(static_cast<int>(r)) = gradients[r];
  }
  REQUIRE(program.step(world) == "");
}

SparseProgram of_one(int ranks, const std::string& values = "f32") {
  return SparseProgram(one_tensor("gtopk:density=0.25,values=" + values, ranks, 4));
}

using Floats = std::vector<float>;

}  // namespace

// Rank 0 drops rank 1's part of element 1, which ranks 2 and 3 bring into the result.
TEST_CASE("what a merge drops of an element of the result stays with who drops it",
          "[sparse][gtopk]") {
  SparseProgram program = of_one(4);
  step_of(program, {{5, 0, 1, 0}, {0, 3, 1, 0}, {0, 7, 0, 0}, {0, 1, 0, 0}});
  CHECK(program.result(0) == Floats{0, 8, 0, 0});
  CHECK(program.residual(0) == Floats{5, 3, 1, 0});
  CHECK(program.residual(1) == Floats{0, 0, 1, 0});
  CHECK(program.residual(2) == Floats{0, 0, 0, 0});
  CHECK(program.residual(3) == Floats{0, 0, 0, 0});
}

// Ranks 2 and 3 have merged theirs, which rank 0 drops.
TEST_CASE("what the result lacks stays with the ranks that gave it", "[sparse][gtopk]") {
  SparseProgram program = of_one(4);
  step_of(program, {{5, 0, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 2}, {0, 0, 0, 3}});
  CHECK(program.result(0) == Floats{6, 0, 0, 0});
  CHECK(program.residual(0) == Floats{0, 0, 0, 0});
  CHECK(program.residual(1) == Floats{0, 0, 0, 0});
  CHECK(program.residual(2) == Floats{0, 0, 0, 2});
  CHECK(program.residual(3) == Floats{0, 0, 0, 3});
}

TEST_CASE("of equal sums the first one stays", "[sparse][gtopk]") {
  SparseProgram program = of_one(3);
  step_of(program, {{0, 0, 0, -2}, {0, 0, 2, 0}, {0, 2, 0, 0}});
  CHECK(program.result(0) == Floats{0, 2, 0, 0});
  CHECK(program.residual(0) == Floats{0, 0, 0, -2});
  CHECK(program.residual(1) == Floats{0, 0, 2, 0});
}

// 2 + 2^-7 lies between two numbers of bfloat16.
TEST_CASE("what 16 bits lose of an element of the result stays with who rounds",
          "[sparse][gtopk]") {
  constexpr float part = 0x1p-7f;
  SparseProgram program = of_one(4, "bf16");
  step_of(program, {{1, 0, 0, 0}, {1 + part, 0, 0, 0}, {0.5f, 0, 0, 0}, {0.25f, 0, 0, 0}});
  CHECK(program.result(0) == Floats{2.75f, 0, 0, 0});
  CHECK(program.residual(0) == Floats{part, 0, 0, 0});
  CHECK(program.residual(1) == Floats{0, 0, 0, 0});
  step_of(program, {{1 - part, 0, 0, 0}, {1 + part, 0, 0, 0}, {0, 4, 0, 0}, {0, 0, 0, 0}});
  CHECK(program.result(0) == Floats{0, 4, 0, 0});
  CHECK(program.residual(0) == Floats{1, 0, 0, 0});
  CHECK(program.residual(1) == Floats{1 + part, 0, 0, 0});
}

// Ranks 2 and 3 make an infinite sum, which rank 0 drops; rank 4 brings its element into the
// result.
TEST_CASE("of a sum beyond float32 that a merge drops nothing is kept", "[sparse][gtopk]") {
  constexpr float most = std::numeric_limits<float>::max();
  SparseProgram program(one_tensor("gtopk:density=0.5", 8, 4));
  const Floats zeros(4);
  step_of(program, {{most, most, 0, 0},
                    zeros,
                    {0, 0, most, 0},
                    {0, 0, most, 0},
                    {-most, 0, 1, 0},
                    zeros,
                    zeros,
                    zeros});
  CHECK(program.result(0) == Floats{0, most, 1, 0});
  CHECK(program.residual(0) == Floats{most, 0, 0, 0});
  CHECK(program.residual(4) == Floats{-most, 0, 0, 0});
}

TEST_CASE("the result has k elements, whatever the number of ranks", "[sparse][gtopk]") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    SparseCase c = one_tensor("gtopk:density=0.01", ranks, 20000);
    c.counts.push_back(300);
    SparseProgram program(c);
    World world(world_of(c));
    for (std::uint64_t step = 0; step < 3; ++step) {
      program.draw(step);
      REQUIRE(program.step(world) == "");
      for (int r = 0; r < ranks; ++r) {
        INFO(describe(c) << ", rank " << r);
        CHECK(program.compressor(r).stats.selected_local == 200);
        CHECK(program.compressor(r).stats.selected_union == 200);
        CHECK(program.compressor(r, 1).stats.selected_union == 3);
      }
    }
  }
}

TEST_CASE("gtopk's tree costs what its model says", "[sparse][gtopk]") {
  const std::size_t count = 300'000;
  for (int ranks = 2; ranks <= 17; ++ranks) {
    SparseCase c = one_tensor("gtopk:density=0.02", ranks, count);
    SparseProgram program(c);
    const TopkShape shape{.ranks = ranks, .count = count, .density = 0.02};
    for (const LinkCost& link : {LinkCost{2e-6, 1e-8, 0}, {1e-3, 1e-8, 0}, {1e-1, 1e-8, 0}}) {
      SimConfig config;
      config.link = {link.alpha, link.beta};
      World world(world_of(c, config));
      program.draw(1);
      REQUIRE(program.step(world) == "");
      const double off = world.elapsed_s() / gtopk_cost(shape, link) - 1;
      INFO(describe(c) << ", alpha " << link.alpha << ": off by " << off);
      CHECK(std::fabs(off) < 0.05);
    }
  }
}

TEST_CASE("of 2^n ranks the tree has 2 n rounds of a list each", "[sparse][gtopk]") {
  const LinkCost link{1e-4, 1e-9, 0};
  for (int n = 1; n <= 10; ++n) {
    const TopkShape shape{.ranks = 1 << n, .count = 1'000'000, .density = 0.01};
    const double list = list_bytes(shape.pairs(), shape.elements(), 32);
    CHECK(gtopk_cost(shape, link) == Approx(2 * n * (link.alpha + list * link.beta)));
  }
}

// 4 k log2 P words instead of 2 (P - 1) k.
TEST_CASE("with many ranks gtopk takes less time than all ranks' lists", "[sparse][gtopk]") {
  const TopkShape shape{.ranks = 64, .count = 16'000'000, .density = 0.01};
  const LinkCost link{50e-6, 8e-9, 0};
  CHECK(gtopk_cost(shape, link) < 0.2 * topk_direct_cost(shape, link));
  CHECK(gtopk_cost(shape, link) > kept_sums_cost(shape, 0, link));
}

}  // namespace pith::test
