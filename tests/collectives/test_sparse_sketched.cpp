// ARC-Top-K: which rows are elected, and what they cost. The rules for all schemes are in
// test_schemes.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "collectives/sparse/sketched/arc_topk_cost.hpp"
#include "collectives/sparse/sketched/row_election.hpp"
#include "compress/low_rank/stated_matrices.hpp"
#include "compress/saved_state.hpp"
#include "kernels/host_compute.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sketched_reference.hpp"

namespace pith::test {

namespace {

constexpr MatrixShape tall{400, 50};
constexpr MatrixShape wide{50, 400};
constexpr MatrixShape vector{1, 300};
constexpr std::array matrices{tall, vector, wide};
constexpr std::size_t count = 2 * 20000 + 300;

void state(SparseProgram& program, std::span<const MatrixShape> shapes) {
  for (int r = 0; r < program.sparse_case().ranks; ++r) {
    REQUIRE_FALSE(state_matrices(program.compressor(r), shapes));
  }
}

std::vector<std::uint32_t> taken_by(SparseProgram& program, int rank) {
  PairList& taken = program.compressor(rank).taken();
  return {taken.indices(), taken.indices() + taken.count()};
}

std::vector<std::uint32_t> elected(std::vector<float> sketch, std::size_t columns, std::size_t k) {
  HostCompute host;
  std::vector<std::uint32_t> rows(sketch.size() / columns);
  std::vector<float> norms(rows.size());
  elect_rows(host, sketch, columns, k, rows, norms);
  rows.resize(k);
  return rows;
}

}  // namespace

TEST_CASE("rows of the largest norms are elected, and of equal ones the lowest", "[sketched]") {
  using Rows = std::vector<std::uint32_t>;
  CHECK(elected({1, 1, 0, 3, -4, 0, 0, 0}, 2, 2) == Rows{1, 2});
  CHECK(elected({2, 0, 0, -2, 1, 1, 0, 2}, 2, 2) == Rows{0, 1});
  CHECK(elected({0, 0, 0, 0}, 1, 3) == Rows{0, 1, 2});
  CHECK(elected({1, 2, 3}, 1, 3) == Rows{0, 1, 2});
  constexpr float infinite = std::numeric_limits<float>::infinity();
  constexpr float huge = std::numeric_limits<float>::max();
  CHECK(elected({huge, 0, 1, NAN, 0, 0, infinite, 0}, 2, 2) == Rows{1, 3});
  CHECK(elected({1e-30f, 1e-38f, 1e-30f, 2e-38f, 0, 0}, 2, 1) == Rows{0});
}

TEST_CASE("rows of stated matrices are sent, and vectors whole", "[sketched]") {
  const int ranks = GENERATE(1, 3);
  SparseCase c = one_tensor("arc-topk:density=0.1", ranks, count);
  SparseProgram program(c);
  state(program, matrices);
  World world(world_of(program.sparse_case()));
  const auto reference = sketched_reference(c);
  for (std::uint64_t step = 0; step < 4; ++step) {
    program.draw(step);
    REQUIRE(program.step(world) == "");
    REQUIRE(reference->check(program) == "");
    CHECK(taken_by(program, ranks - 1).size() == 40 * 50 + 300 + 5 * 400);
  }
}

// No rank alone could tell: its own large rows cancel, and the row that counts is small everywhere.
TEST_CASE("the sum's rows are elected, not those that are large on ranks", "[sketched]") {
  SparseProgram program(one_tensor("arc-topk:density=0.0025", 2, tall.rows * tall.columns));
  state(program, std::array{tall});
  World world(world_of(program.sparse_case()));
  program.draw(0);
  for (int r = 0; r < 2; ++r) {
    std::vector<float>& gradient = program.gradient(r);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = r == 0 ? 8.0f * static_cast<float>(i % 7) : -8.0f * static_cast<float>(i % 7);
    }
    std::fill_n(gradient.begin() + 123 * 50, 50, 0.5f);
  }
  REQUIRE(program.step(world) == "");
  REQUIRE(taken_by(program, 0).size() == 50);
  CHECK(taken_by(program, 0)[0] == 123 * 50);
  CHECK(taken_by(program, 1) == taken_by(program, 0));
}

// With one number for each row, what is elected is chance, and another in the next step.
TEST_CASE("seeds and steps sketch otherwise", "[sketched]") {
  constexpr std::size_t all = 200 * 200;
  const auto first_taken = [](const std::string& spec, int steps) {
    SparseProgram program(one_tensor(spec, 1, all));
    World world(world_of(program.sparse_case()));
    for (int step = 0; step < steps; ++step) {
      program.draw(0);
      REQUIRE(program.step(world) == "");
    }
    return taken_by(program, 0);
  };
  const std::string spec = "arc-topk:density=0.05,sketch=1,feedback=0";
  const auto first = first_taken(spec, 1);
  CHECK(first == first_taken(spec, 1));
  CHECK(first != first_taken(spec + ",seed=1", 1));
  CHECK(first != first_taken(spec, 2));
}

TEST_CASE("what is too small for a sketch is sent whole", "[sketched]") {
  const RowCounts small = square_row_counts(100, 4, 0.01);
  CHECK((small.sketch == 0 && small.elements == 100));
  const RowCounts square = square_row_counts(10007, 4, 0.01);
  CHECK((square.sketch == 400 && square.elements == 107));
  for (const std::size_t n : {0, 1, 99, 300, 5000, 99999}) {
    for (const double density : {0.001, 0.1, 1.0}) {
      const RowCounts known = row_counts(LowRankLayout::square(n, 3), density);
      const RowCounts guessed = square_row_counts(n, 3, density);
      CHECK((known.sketch == guessed.sketch && known.elements == guessed.elements));
    }
  }
  const RowCounts stated = row_counts(LowRankLayout(matrices, 4), 0.01);
  CHECK((stated.sketch == 450 * 4 && stated.elements == 4 * 50 + 300 + 400));
  Compressor compressor(*Spec::parse("arc-topk:density=0.1..1"));
  CHECK(most_elected(compressor, 10007) == 10007);
  REQUIRE_FALSE(state_matrices(compressor, matrices));
  CHECK(most_elected(compressor, count) == count);
  CHECK(most_elected(Compressor(*Spec::parse("topk:density=0.1")), 1000) == 100);
}

TEST_CASE("sketches beyond float32 elect their rows on all ranks alike", "[sketched]") {
  SparseProgram program(one_tensor("arc-topk:density=0.01", 3, 10000));
  World world(world_of(program.sparse_case()));
  program.draw(0);
  for (int r = 0; r < 3; ++r) {
    std::fill_n(program.gradient(r).begin() + 7000, 100, r == 1 ? -3e38f : 3e38f);
  }
  REQUIRE(program.step(world) == "");
  REQUIRE(taken_by(program, 0).size() == 100);
  CHECK(taken_by(program, 0)[0] == 7000);
  CHECK(taken_by(program, 2) == taken_by(program, 0));
}

TEST_CASE("stated matrices are part of what ranks agree on and of a saved state", "[sketched]") {
  SparseProgram program(one_tensor("arc-topk", 1, count));
  const std::uint64_t unstated = program.compressor(0).digest();
  state(program, matrices);
  CHECK(program.compressor(0).digest() != unstated);
  World world(world_of(program.sparse_case()));
  program.draw(0);
  REQUIRE(program.step(world) == "");
  CHECK(state_matrices(program.compressor(0), std::array{MatrixShape{count, 1}}));
  std::vector<std::byte> bytes(saved_bytes(program.compressor(0)));
  save(program.compressor(0), bytes.data());
  HostCompute host;
  Compressor loaded(program.compressor(0).spec());
  REQUIRE_FALSE(load(loaded, host, bytes));
  CHECK(std::ranges::equal(loaded.low_rank.layout->matrices(), matrices));
  Compressor other(program.compressor(0).spec());
  REQUIRE_FALSE(state_matrices(other, std::array{MatrixShape{2, count / 2}}));
  CHECK(load(other, host, bytes));
}

TEST_CASE("elected rows cost what their model says", "[sketched]") {
  for (const int ranks : {2, 4, 8, 17}) {
    constexpr std::size_t all = 2'000'000;
    SparseCase c = one_tensor("arc-topk:density=0.05", ranks, all);
    SparseProgram program(c);
    for (const LinkCost& link : {LinkCost{2e-6, 1e-9, 0}, {1e-4, 1e-9, 0}, {1e-2, 1e-9, 0}}) {
      SimConfig config;
      config.link = {link.alpha, link.beta};
      World world(world_of(c, config));
      REQUIRE(program.step(world) == "");
      const RowCounts rows = square_row_counts(all, 4, 0.05);
      const double expected = arc_topk_cost(rows, sizeof(float), ranks, link);
      const double off = world.elapsed_s() / expected - 1;
      INFO(describe(c) << ", alpha " << link.alpha << ": off by " << off);
      CHECK(std::fabs(off) < 0.1);
    }
  }
}

}  // namespace pith::test
