// ExDyna in rounds: they change no bit, and their values are summed while later ones are read, so
// that a call takes little longer than its slowest stage alone.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// Beside the same in one round.
std::string run_beside_one_round(SparseCase c, int steps) {
  SparseProgram rounds(c);
  c.chunk_bytes = std::size_t{1} << 20;
  SparseProgram one(c);
  World world(world_of(c));
  World other(world_of(c));
  for (int step = 0; step < steps; ++step) {
    rounds.draw(static_cast<std::uint64_t>(step));
    one.draw(static_cast<std::uint64_t>(step));
    std::string failure = rounds.step(world);
    if (failure.empty()) failure = one.step(other);
    // Each round is a run of what is taken.
    if (failure.empty() && rounds.compressor(0).taken().runs() < 2) failure = "a single round";
    if (failure.empty() && one.compressor(0).taken().runs() != 1) failure = "several rounds";
    for (std::size_t t = 0; t < c.counts.size() && failure.empty(); ++t) {
      for (int r = 0; r < c.ranks; ++r) {
        if (rounds.residual(r, t) != one.residual(r, t)) failure = "another residual";
      }
      if (rounds.result(0, t) != one.result(0, t)) failure = "another result";
    }
    if (!failure.empty()) return fmt::format("{}, step {}: {}", describe(c), step, failure);
  }
  return world.leaks() + other.leaks();
}

// Reading takes so long, and writing the result a third of that.
constexpr double read_s = 10e-3;
constexpr std::size_t count = std::size_t{1} << 20;

// Of a call, kernels included: of ranks whose kernels, or whose links, take no time where the
// factor is zero. A link is as busy as a core at `link` = 1.
double seconds_of(int ranks, double kernels, double link) {
  SparseCase c;
  c.ranks = ranks;
  c.counts = {count};
  c.spec = "exdyna:density=0.01";
  c.chunk_bytes = (std::size_t{1} << 16) / static_cast<std::size_t>(ranks) / 4;  // 16 rounds
  SimConfig config;
  config.link = {link == 0 ? 0 : 20e-6, link * 2e-7};
  config.gamma_s_per_byte = kernels * read_s / double(12 * count);
  SparseProgram program(c);
  World world(world_of(c, config));
  REQUIRE(program.begin(world, 2) == "");
  const SimTime begin = world.sim().now();
  REQUIRE(program.step(world) == "");
  double end_s = world.elapsed_s();
  for (int r = 0; r < c.ranks; ++r) {
    end_s = std::max(end_s, sim_seconds(world.compute(r).free_at() - begin));
  }
  return end_s;
}

}  // namespace

// Where no rank finds more than it may elect, which happens in short vectors: of those it takes the
// largest of a round.
TEST_CASE("rounds change no bit of ExDyna's results", "[sparse][exdyna]") {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const char* scheme : {"exdyna", "micro"}) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {40000, 0, 20000};
      c.spec = fmt::format("{}:density=0.2", scheme);
      c.average = ranks == 3;
      for (const std::size_t chunk_bytes : {64, 200, 500}) {
        c.chunk_bytes = chunk_bytes;
        c.in_place = chunk_bytes == 500;
        CHECK(run_beside_one_round(c, 6) == "");
      }
    }
  }
}

// In one stage after the other they would take twice as long where both are equal.
TEST_CASE("ExDyna takes little longer than its slowest stage", "[sparse][exdyna][tails][long]") {
  for (const int ranks : {2, 4, 8}) {
    for (const double link : {0.1, 0.5, 1.0, 2.0, 5.0}) {
      const double kernels_s = seconds_of(ranks, 1, 0);
      const double links_s = seconds_of(ranks, 0, link);
      const double both_s = seconds_of(ranks, 1, link);
      INFO(ranks << " ranks, kernels " << kernels_s << " s, links " << links_s << " s, both "
                 << both_s << " s");
      CHECK(both_s < 1.15 * std::max(kernels_s, links_s));
    }
  }
}

}  // namespace pith::test
