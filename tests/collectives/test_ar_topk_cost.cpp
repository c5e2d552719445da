// The cost function of AR-Topk against the simulator.
#include "collectives/sparse/ar_topk_cost.hpp"

#include "collectives/lists/parcels.hpp"
#include "collectives/sparse/exdyna_cost.hpp"
#include "compress/ar_topk_scheme.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

TEST_CASE("indices along a chain cost the same bytes for any number of ranks", "[ar-topk][cost]") {
  const double beta = 1e-9;
  SparseShape shape{.ranks = 8, .pairs = 1e6, .parcels = 64};
  const double few = ar_topk_cost(shape, 0, beta);
  shape.ranks = 16;
  CHECK(ar_topk_cost(shape, 0, beta) < 1.2 * few);
}

namespace {

constexpr double density = 0.05;

// Bits an index, where messages carry so many of a range's pairs.
double bits_of_part(double part) { return part > 0 ? part * bits_per_index(part * density) : 0; }

// Its leader had promised what it then elected: nothing was replaced.
bool as_promised(SparseProgram& program, const SparseShape& shape) {
  PairList& taken = program.compressor(program.compressor(0).stats.leader).taken();
  return shape.messages() == 1 || taken.runs() == static_cast<std::size_t>(shape.parcels) + 1;
}

// What parcels carried, of all pairs. Who selects first has no tails.
double certain_part(SparseProgram& program, const SparseShape& shape) {
  if (shape.by_vote || shape.messages() == 1) return 1;
  PairList& taken = program.compressor(program.compressor(0).stats.leader).taken();
  const double rest = static_cast<double>(taken.run(taken.runs() - 1).count);
  return 1 - rest / static_cast<double>(taken.count());
}

SparseShape shape_of(const SparseCase& c) {
  const Spec spec = *Spec::parse(c.spec);
  const std::size_t parcel = parcel_elements(c.counts[0], density, c.chunk_bytes);
  SparseShape shape;
  shape.ranks = c.ranks;
  shape.pairs = static_cast<double>(elected_of(density, c.counts[0]));
  shape.value_bits = 8 * static_cast<double>(size_of(spec.values));
  shape.parcels = static_cast<int>(chunks_in(c.counts[0], parcel));
  if (shape.parcels > 1) {
    shape.tails = static_cast<int>(chunks_in(c.counts[0], tail_elements(c.counts[0], parcel)));
  }
  shape.by_vote = election_of(spec) == Election::variance;
  return shape;
}

// What one step takes whose leader keeps what it promised.
double simulated(SparseProgram& program, SparseShape& shape, const LinkCost& link) {
  SimConfig config;
  config.link = {link.alpha, link.beta};
  World world(world_of(program.sparse_case(), config));
  bool good = false;
  for (int step = 0; step < 4 * shape.ranks && !good; ++step) {
    program.draw(3 * static_cast<std::uint64_t>(step));  // of one magnitude
    REQUIRE(program.step(world) == "");
    good = as_promised(program, shape);
  }
  REQUIRE(good);
  shape.certain = certain_part(program, shape);
  shape.index_bits = bits_of_part(shape.certain) + bits_of_part(1 - shape.certain);
  return world.elapsed_s();
}

void check_cost(const SparseCase& c) {
  SparseProgram program(c);
  SparseShape shape = shape_of(c);
  World world(world_of(c));
  for (int step = 0; step < c.ranks + 2; ++step) {  // every rank has led, and can foresee
    program.draw(3 * static_cast<std::uint64_t>(step));
    REQUIRE(program.step(world) == "");
  }
  for (const LinkCost& link : {LinkCost{2e-6, 1e-9, 0}, {1e-5, 1e-8, 0}, {1e-4, 1e-9, 0}}) {
    const double seconds = simulated(program, shape, link);
    const double off = seconds / ar_topk_cost(shape, link.alpha, link.beta) - 1;
    INFO(describe(c) << ", " << shape.messages() << " messages, alpha " << link.alpha
                     << ", certain " << shape.certain << ": off by " << off);
    CHECK(std::fabs(off) < 0.1);
  }
}

SparseCase case_of(int ranks, std::size_t count, const char* keys) {
  SparseCase c;
  c.ranks = ranks;
  c.counts = {count};
  c.chunk_bytes = 1024;  // a parcel is a block of the index code
  c.spec = fmt::format("ar-topk:density={},{}", density, keys);
  return c;
}

constexpr const char* elections[] = {"election=staleness", "election=staleness,values=bf16",
                                     "election=variance,values=bf16", "election=variance-lagged"};

}  // namespace

TEST_CASE("AR-Topk in one parcel costs what its model says", "[ar-topk][cost]") {
  for (const char* keys : elections) {
    for (const int ranks : {2, 3, 4, 8, 17}) check_cost(case_of(ranks, 60000, keys));
  }
}

TEST_CASE("AR-Topk in several parcels costs what its model says", "[ar-topk][cost][long]") {
  constexpr std::size_t block = EncodeIndicesKernel::block_elements;
  constexpr int sizes[] = {2, 4, 8, 17};
  int which = 0;
  for (const char* keys : elections) {
    ++which;
    for (int i = 0; i < 4; ++i) {
      if (!is_turn(which + i, 0, 4)) continue;
      const int ranks = sizes[i];
      check_cost(case_of(ranks, 4 * block, keys));
      // More messages than channels hold.
      if (ranks < 8 || keys == elections[0]) check_cost(case_of(ranks, 12 * block, keys));
    }
  }
}

}  // namespace pith::test
