// The cost functions of top-k's exchanges against the simulator on ideal links: lists differ a
// little in their lengths, those of shares the most. Pairs of settings; PITH_TEST_FULL=1 runs their
// product.
#include "collectives/sparse/topk_cost.hpp"

#include <array>

#include "collectives/lists/parcels.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/pairwise.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

using Cost = double (*)(const TopkShape& shape, const LinkCost& link);

struct Way {
  const char* keys;
  double value_bits;
  Cost cost;
};
constexpr Way ways[] = {
    {"exchange=direct", 32, topk_direct_cost},
    {"exchange=direct,values=bf16", 16, topk_direct_cost},
    {"exchange=ring", 32, topk_ring_cost},
    {"exchange=ring,values=f16", 16, topk_ring_cost},
    {"exchange=split", 32, topk_split_cost},
    {"exchange=split,values=bf16", 16, topk_split_cost},
    {"exchange=recursive-doubling", 32, topk_recursive_doubling_cost},
};

// The same elements, spread over the vector, are by far the largest on every rank.
void elect_alike(SparseProgram& program, double part, double density) {
  const std::size_t count = program.gradient(0).size();
  const double alike = part * static_cast<double>(elected_of(density, count));
  const auto stride = static_cast<std::size_t>(static_cast<double>(count) / std::max(alike, 1.0));
  for (int r = 0; r < program.sparse_case().ranks && alike > 0; ++r) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(alike); ++i) {
      program.gradient(r)[i * stride] = 10 + float(i % 7);
    }
  }
}

// What one step takes, the lists of all ranks being as the shape says.
double simulated(const Way& way, const TopkShape& shape, const LinkCost& link) {
  SparseCase c;
  c.ranks = shape.ranks;
  c.counts = {shape.count};
  c.spec = fmt::format("topk:density={},{}", shape.density, way.keys);
  c.chunk_bytes = std::size_t{1} << 24;  // one message holds a list
  SparseProgram program(c);
  SimConfig config;
  config.link = {link.alpha, link.beta};
  World world(world_of(c, config));
  program.draw(0);
  elect_alike(program, shape.common, shape.density);
  REQUIRE(program.step(world) == "");
  return world.elapsed_s();
}

}  // namespace

TEST_CASE("top-k's exchanges cost what their models say", "[sparse][cost]") {
  for (const Combination& v : combinations(std::array{7, 5, 2, 3, 2})) {
    const Way& way = ways[v[0]];
    TopkShape shape{.ranks = std::array{2, 3, 4, 8, 17}[std::size_t(v[1])], .count = 60000};
    shape.density = v[2] == 0 ? 0.1 : 0.02;
    shape.common = 0.5 * v[3];
    shape.value_bits = way.value_bits;
    const LinkCost link{v[4] == 0 ? 2e-6 : 1e-4, 1e-9, 0};
    const double expected = way.cost(shape, link);
    const double off = simulated(way, shape, link) / expected - 1;
    INFO(way.keys << ", " << shape.ranks << " ranks, density " << shape.density << ", common "
                  << shape.common << ", alpha " << link.alpha << ": off by " << off);
    CHECK(std::fabs(off) < 0.08);
  }
}

TEST_CASE("lists beyond a block of the index code cost what their models say", "[sparse][cost]") {
  for (const Way& way : ways) {
    for (const int ranks : {2, 4, 17}) {
      TopkShape shape{.ranks = ranks, .count = 300000};
      shape.density = 0.01;
      shape.value_bits = way.value_bits;
      const LinkCost link{1e-5, 1e-9, 0};
      const double off = simulated(way, shape, link) / way.cost(shape, link) - 1;
      INFO(way.keys << ", " << ranks << " ranks: off by " << off);
      CHECK(std::fabs(off) < 0.08);
    }
  }
}

namespace {

// The same with lists in several messages, once the selection can foresee what is certain.
void check_streamed(const Way& way, int ranks, std::size_t count, double density) {
  SparseCase c;
  c.ranks = ranks;
  c.counts = {count};
  c.spec = fmt::format("topk:density={},{}", density, way.keys);
  c.chunk_bytes = 1024;
  TopkShape shape{.ranks = ranks, .count = count};
  shape.density = density;
  shape.value_bits = way.value_bits;
  const std::size_t parcel = parcel_elements(count, density, c.chunk_bytes);
  shape.messages =
      static_cast<int>(chunks_in(count, parcel) + chunks_in(count, tail_elements(count, parcel)));
  SparseProgram program(c);
  World settling(world_of(c));
  REQUIRE(program.begin(settling, 5) == "");
  std::uint64_t next = 5;
  for (const LinkCost& link : {LinkCost{2e-6, 1e-9, 0}, {1e-4, 1e-9, 0}}) {
    SimConfig config;
    config.link = {link.alpha, link.beta};
    World world(world_of(c, config));
    program.draw(next);
    next += 3;  // of the same magnitude
    REQUIRE(program.step(world) == "");
    const Cost cost = ranks == 2 ? topk_direct_cost : way.cost;
    const double off = world.elapsed_s() / cost(shape, link) - 1;
    INFO(describe(c) << ", " << shape.messages << " messages, alpha " << link.alpha << ": off by "
                     << off);
    CHECK(std::fabs(off) < 0.1);
  }
}

}  // namespace

TEST_CASE("streamed lists cost what their models say", "[sparse][cost]") {
  constexpr std::size_t block = EncodeIndicesKernel::block_elements;
  for (const Combination& v : combinations(std::array{4, 4, 2, 2})) {
    const int ranks = std::array{2, 4, 8, 17}[std::size_t(v[1])];
    const std::size_t parcels = v[2] == 0 || ranks > 8 ? 4 : 16;
    check_streamed(ways[v[0]], ranks, parcels * block, v[3] == 0 ? 0.1 : 0.01);
  }
}

TEST_CASE("unions of lists", "[sparse][cost]") {
  TopkShape shape{.ranks = 8, .count = 10000};
  shape.density = 0.1;
  CHECK(shape.together(1) == Approx(1000));
  CHECK(shape.together(2) == Approx(1900));
  CHECK(shape.together(1000) == Approx(10000));
  shape.common = 1;
  CHECK(shape.together(1000) == Approx(1000));
  shape.density = 1;
  CHECK(shape.together(3) == Approx(10000));
}

TEST_CASE("where ranks elect alike, sums of lists move less than lists", "[sparse][cost]") {
  const LinkCost link{0, 1e-9, 0};
  TopkShape shape{.ranks = 16, .count = 1000000};
  shape.density = 0.01;
  CHECK(topk_split_cost(shape, link) < topk_recursive_doubling_cost(shape, link));
  CHECK(topk_direct_cost(shape, link) < 2 * topk_split_cost(shape, link));
  shape.common = 1;
  CHECK(topk_split_cost(shape, link) < 0.2 * topk_direct_cost(shape, link));
  CHECK(topk_recursive_doubling_cost(shape, link) < 0.4 * topk_direct_cost(shape, link));
}

}  // namespace pith::test
