// Random-k: what is drawn, and what it costs. The rules for all schemes are in test_schemes.cpp.
#include <algorithm>
#include <cmath>

#include "collectives/sparse/random_k_cost.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

std::vector<std::uint32_t> drawn_by(SparseProgram& program, int rank) {
  PairList& taken = program.compressor(rank).taken();
  return {taken.indices(), taken.indices() + taken.count()};
}

}  // namespace

TEST_CASE("each element is drawn in time, and none more often than its share", "[sparse][drawn]") {
  SparseProgram program(one_tensor("randomk:density=0.05", 2, 1000));
  World world(world_of(program.sparse_case()));
  std::vector<int> times(1000);
  for (std::uint64_t step = 0; step < 400; ++step) {
    program.draw(step);
    REQUIRE(program.step(world) == "");
    const std::vector<std::uint32_t> drawn = drawn_by(program, 0);
    REQUIRE(drawn == drawn_by(program, 1));
    REQUIRE(drawn.size() == 50);
    REQUIRE(std::is_sorted(drawn.begin(), drawn.end()));
    for (const std::uint32_t element : drawn) ++times[element];
  }
  CHECK(*std::min_element(times.begin(), times.end()) > 0);
  CHECK(*std::max_element(times.begin(), times.end()) < 60);  // 20 on average
}

TEST_CASE("seeds and steps draw other elements", "[sparse][drawn]") {
  SparseProgram one(one_tensor("randomk:density=0.01", 1, 100000));
  SparseProgram other(one_tensor("randomk:density=0.01,seed=1", 1, 100000));
  World world(world_of(one.sparse_case()));
  one.draw(0);
  other.draw(0);
  REQUIRE(one.step(world) == "");
  REQUIRE(other.step(world) == "");
  const std::vector<std::uint32_t> first = drawn_by(one, 0);
  const auto differ = [&](const std::vector<std::uint32_t>& drawn) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < first.size(); ++i) n += drawn[i] != first[i] ? 1 : 0;
    return n > first.size() * 9 / 10;
  };
  CHECK(differ(drawn_by(other, 0)));
  one.draw(1);
  REQUIRE(one.step(world) == "");
  CHECK(differ(drawn_by(one, 0)));
}

TEST_CASE("drawn values cost what their model says", "[sparse][drawn]") {
  for (const int ranks : {2, 4, 8, 17}) {
    const std::size_t count = 2'000'000;
    SparseCase c = one_tensor("randomk:density=0.05", ranks, count);
    SparseProgram program(c);
    for (const LinkCost& link : {LinkCost{2e-6, 1e-9, 0}, {1e-4, 1e-9, 0}, {1e-2, 1e-9, 0}}) {
      SimConfig config;
      config.link = {link.alpha, link.beta};
      World world(world_of(c, config));
      REQUIRE(program.step(world) == "");
      const double expected = random_k_cost(count / 20 * sizeof(float), ranks, link);
      const double off = world.elapsed_s() / expected - 1;
      INFO(describe(c) << ", alpha " << link.alpha << ": off by " << off);
      CHECK(std::fabs(off) < 0.1);
    }
  }
}

}  // namespace pith::test
