// DEFT's election and cost; what it has in common with other schemes: test_schemes.cpp.
#include <set>

#include "collectives/sparse/exdyna_cost.hpp"
#include "compress/deft/plan.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

SparseCase case_of(int ranks, std::vector<std::size_t> counts, const std::string& rest) {
  SparseCase c;
  c.ranks = ranks;
  c.counts = std::move(counts);
  c.spec = "deft:" + rest;
  return c;
}

}  // namespace

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
