// The cost function of ExDyna and MiCRO against the simulator, in one round and in several.
#include "collectives/sparse/exdyna_cost.hpp"

#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

constexpr std::size_t count = 400000;

// Of one more step. Returns how many rounds it had.
std::size_t check_cost(SparseProgram& program, const LinkCost& link) {
  const SparseCase& c = program.sparse_case();
  SimConfig config;
  config.link = {link.alpha, link.beta};
  World world(world_of(c, config));
  REQUIRE(program.step(world) == "");
  const std::size_t rounds = program.compressor(0).taken().runs();  // a run a round
  const CompressorStats& stats = program.compressor(0).stats;
  ExdynaShape shape{.ranks = c.ranks, .count = count};
  shape.density = static_cast<double>(stats.selected_union) / count;
  shape.imbalance = stats.imbalance;
  shape.value_bits = 8 * static_cast<double>(size_of(Spec::parse(c.spec)->values));
  shape.rounds = static_cast<int>(rounds);
  const double off = world.elapsed_s() / exdyna_cost(shape, link) - 1;
  INFO(describe(c) << ", " << rounds << " rounds, alpha " << link.alpha << ", density "
                   << shape.density << ": off by " << off);
  CHECK(std::fabs(off) < 0.1);
  return rounds;
}

}  // namespace

TEST_CASE("ExDyna and MiCRO cost what their model says", "[sparse][exdyna][cost][long]") {
  for (const char* spec : {"exdyna:density=0.05", "exdyna:density=0.01,values=f16",
                           "micro:density=0.05,values=bf16"}) {
    for (const int ranks : {2, 4, 8, 17}) {
      std::size_t most = 0;
      for (const std::size_t chunk_bytes : {1u << 24, 8192u, 256u}) {
        SparseCase c;
        c.ranks = ranks;
        c.counts = {count};
        c.spec = spec;
        c.chunk_bytes = chunk_bytes;
        SparseProgram program(c);
        World world(world_of(c));
        REQUIRE(program.begin(world, 8) == "");
        for (const LinkCost& link : {LinkCost{2e-6, 1e-9, 0}, {1e-5, 1e-8, 0}, {1e-4, 1e-9, 0}}) {
          most = std::max(most, check_cost(program, link));
        }
      }
      CHECK(most == 16);
    }
  }
}

}  // namespace pith::test
