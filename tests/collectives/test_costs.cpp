// The cost functions against the simulator on ideal links, for 2 to 17 ranks.
//
// Exact (1e-9) where every block is one chunk and sizes divide: the file comments claim so. Where
// blocks are cut into chunks a cost is an estimate, held to the bound stated with its test, for
// pairs of settings; PITH_TEST_FULL=1 runs their product.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "collectives/algorithm.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/algorithm_conformance.hpp"
#include "tests/collectives/pairwise.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

namespace {

// Whole picoseconds per byte, so that the simulator's clock is exact. Reducing is slower than the
// wire for `busy_core`.
constexpr LinkCost usual{2e-6, 1e-9, 2.5e-10};
constexpr LinkCost busy_core{2e-6, 1e-9, 4e-9};
constexpr LinkCost only_latency{2e-6, 0, 0};

double simulated(const Algorithm& algorithm, const Shape& shape, const LinkCost& link) {
  const Extent extent = extent_of(algorithm.collective, shape.ranks);
  CollectiveArgs args;
  args.collective = algorithm.collective;
  args.count = shape.bytes;
  args.type = DType::u8;
  args.tuning = shape.tuning;
  std::vector<std::byte> send(shape.bytes * extent.send);
  std::vector<std::byte> recv(shape.bytes * extent.recv);
  args.send = {send.data(), send.size()};
  args.recv = {recv.data(), recv.size()};  // of all ranks: nobody looks at the results

  SimConfig config;
  config.ranks = shape.ranks;
  config.link = {link.alpha, link.beta};
  config.gamma_s_per_byte = link.gamma;
  World world(config);
  auto task = [&](Call& call, int) { return algorithm.run(call, args); };
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
TEST_CASE("costs are exact where a block is one chunk", "[collectives][cost][conformance]") {
  for (const Algorithm& algorithm : tested_algorithms()) {
    for (int ranks = 2; ranks <= 17; ++ranks) {
      if (!has_exact_cost(algorithm, ranks)) continue;
      for (const std::size_t block : {std::size_t{1}, std::size_t{96}, std::size_t{4096}}) {
        for (const LinkCost& link : {usual, busy_core, only_latency}) {
          const bool reduces = algorithm.collective == Collective::allreduce;
          const std::size_t bytes = reduces ? block * static_cast<std::size_t>(ranks) : block;
          // Algorithms that cut a vector of blocks into columns do not cut this one either.
          const Shape shape{ranks, bytes, {std::size_t{4096} * 17, 4}};
          INFO(name(algorithm, shape));
          CHECK(std::fabs(shortfall(algorithm, shape, link)) < 1e-9);
        }
      }
    }
  }
}

namespace {

// How far the estimates are off at most, each way, and where.
struct Extremes {
  double low = 0;
  double high = 0;
  std::string lowest;
  std::string highest;

  void add(const Algorithm& algorithm, const Shape& shape, const LinkCost& link) {
    const double off = shortfall(algorithm, shape, link);
    const std::string where =
        fmt::format("{}, gamma {}, beta {}", name(algorithm, shape), link.gamma, link.beta);
    if (off < low) lowest = where;
    if (off > high) highest = where;
    low = std::min(low, off);
    high = std::max(high, off);
  }
};

}  // namespace

// Blocks of up to 16 chunks, the last one shorter, 1 to 4 lanes.
TEST_CASE("costs of pipelined shapes are estimates", "[collectives][cost][conformance]") {
  for (const Algorithm& algorithm : tested_algorithms()) {
    // Halving and doubling wait for partners whose strands contend for ports and cores.
    const bool halves = algorithm.name == "rabenseifner" || algorithm.name == "recursive_halving";
    const double bound = halves ? 0.35 : 0.3;
    const bool reduces = algorithm.collective == Collective::allreduce;
    Extremes found;
    for (const Combination& v : combinations(std::array{16, 3, 2, 3, 3})) {
      const int ranks = 2 + v[0];
      const std::size_t chunks = std::array<std::size_t, 3>{2, 3, 16}[std::size_t(v[1])];
      const std::size_t chunk = v[2] == 0 ? 256 : 2048;
      const std::size_t block = chunks * chunk - chunk / 3;
      const std::size_t bytes = reduces ? block * static_cast<std::size_t>(ranks) : block;
      const Shape shape{ranks, bytes, {chunk, 1 << v[3]}};
      found.add(algorithm, shape, std::array{usual, busy_core, only_latency}[std::size_t(v[4])]);
    }
    INFO(algorithm.name << ": " << found.low << " " << found.lowest << "\n"
                        << found.high << " " << found.highest);
    CHECK(found.low > -bound);
    CHECK(found.high < bound);
  }
}

}  // namespace pith::test
