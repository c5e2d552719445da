// The cost functions against the simulator on ideal links, for 2 to 17 ranks.
//
// Exact (1e-9) where every block is one chunk and sizes divide: the file comments claim so. Where
// blocks are cut into chunks a cost is an estimate, held to the bound stated with its test.
#include <cmath>

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

namespace {

// Whole picoseconds per byte, so that the simulator's clock is exact. Reducing is slower than the
// wire for `busy_core`.
constexpr LinkCost usual{2e-6, 1e-9, 2.5e-10};
constexpr LinkCost busy_core{2e-6, 1e-9, 4e-9};
constexpr LinkCost only_latency{2e-6, 0, 0};

double simulated(const Algorithm& algorithm, const Shape& shape, const LinkCost& link) {
  DenseCase c;
  c.algorithm = &algorithm;
  c.ranks = shape.ranks;
  c.type = DType::u8;
  c.count = shape.bytes;
  c.tuning = shape.tuning;
  SimConfig config;
  config.ranks = shape.ranks;
  config.link = {link.alpha, link.beta};
  config.gamma_s_per_byte = link.gamma;
  World world(config);
  DenseProgram program(c);
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
  return world.elapsed_s();
}

// The sign says which way: positive where the formula promises less than it takes.
double shortfall(const Algorithm& algorithm, const Shape& shape, const LinkCost& link) {
  const double promised = algorithm.cost(shape, link);
  return (simulated(algorithm, shape, link) - promised) / promised;
}

std::string name(const Algorithm& algorithm, const Shape& shape) {
  return fmt::format("{} {}: {} ranks, {} bytes, chunks of {}, {} lanes",
                     name_of(algorithm.collective), algorithm.name, shape.ranks, shape.bytes,
                     shape.tuning.chunk_bytes, shape.tuning.lanes);
}

}  // namespace

// Allreduce: a multiple of P bytes, and one chunk holds a block.
TEST_CASE("costs are exact where a block is one chunk", "[collectives][cost]") {
  for (const Algorithm& algorithm : algorithms()) {
    for (int ranks = 2; ranks <= 17; ++ranks) {
      for (const std::size_t block : {std::size_t{1}, std::size_t{96}, std::size_t{4096}}) {
        for (const LinkCost& link : {usual, busy_core, only_latency}) {
          const bool reduces = algorithm.collective == Collective::allreduce;
          const std::size_t bytes = reduces ? block * static_cast<std::size_t>(ranks) : block;
          const Shape shape{ranks, bytes, {4096, 4}};
          INFO(name(algorithm, shape));
          CHECK(std::fabs(shortfall(algorithm, shape, link)) < 1e-9);
        }
      }
    }
  }
}

// Blocks of up to 16 chunks, last ones shorter, 1 to 4 lanes.
TEST_CASE("costs of pipelined shapes are estimates", "[collectives][cost]") {
  constexpr double bound = 0.3;
  for (const Algorithm& algorithm : algorithms()) {
    double low = 0;
    double high = 0;
    std::string lowest;
    std::string highest;
    for (int ranks = 2; ranks <= 17; ++ranks) {
      for (const std::size_t chunks : {1, 2, 3, 5, 8, 16}) {
        for (const std::size_t chunk : {std::size_t{256}, std::size_t{4096}}) {
          for (int lanes = 1; lanes <= 4; lanes *= 2) {
            for (const LinkCost& link : {usual, busy_core, only_latency}) {
              const bool reduces = algorithm.collective == Collective::allreduce;
              const std::size_t block = chunks * chunk - chunk / 3;
              const std::size_t bytes = reduces ? block * static_cast<std::size_t>(ranks) : block;
              const Shape shape{ranks, bytes, {chunk, lanes}};
              const double off = shortfall(algorithm, shape, link);
              const std::string named =
                  name(algorithm, shape) +
                  (link.gamma > link.beta ? ", busy core" : link.beta == 0 ? ", latency" : "");
              if (off < low) low = off, lowest = named;
              if (off > high) high = off, highest = named;
            }
          }
        }
      }
    }
    INFO(lowest);
    INFO(highest);
    CHECK(low > -bound);
    CHECK(high < bound);
  }
}

}  // namespace pith::test
