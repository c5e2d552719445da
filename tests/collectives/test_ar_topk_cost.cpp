// The cost functions of AR-Topk: the paper's against its tables, ours against the simulator.
#include "collectives/sparse/ar_topk_cost.hpp"

#include "collectives/lists/parcels.hpp"
#include "collectives/sparse/exdyna_cost.hpp"
#include "compress/ar_topk_scheme.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

using Cost = double (*)(const SparseShape& shape, double alpha, double beta);

constexpr double gigabits = 1.25e8;

SparseShape shape_of(int ranks, double megabytes, double density) {
  SparseShape shape;
  shape.ranks = ranks;
  shape.pairs = megabytes * 1e6 / 4 * density;
  return shape;
}

// Where the second one costs as much as the first: alpha / beta in units of the bytes of k values.
void check_switch(Cost first, Cost second, int ranks, double k) {
  const SparseShape shape = shape_of(ranks, 4, 1);
  const double beta = 1e-9;
  const double alpha = k * shape.value_bytes() * beta;
  INFO(ranks << " ranks");
  // The table has three digits.
  CHECK(first(shape, alpha * 0.98, beta) < second(shape, alpha * 0.98, beta));
  CHECK(first(shape, alpha * 1.02, beta) > second(shape, alpha * 1.02, beta));
}

}  // namespace

TEST_CASE("costs of AR-Topk switch where the paper's Eq. 5 says", "[ar-topk][cost]") {
  const int ranks[] = {4, 8, 16, 32, 64, 128, 256};
  const double ring_over_tree[] = {1.25, .531, .278, .155, .088, .050, .028};
  const double ring_over_allgather[] = {.417, .661, .804, .888, .937, .965, .980};
  for (std::size_t i = 0; i < std::size(ranks); ++i) {
    check_switch(ar_topk_ring_cost, ar_topk_tree_cost, ranks[i], ring_over_tree[i]);
    check_switch(ar_topk_ring_cost, topk_allgather_cost, ranks[i], ring_over_allgather[i]);
  }
  const double tree_over_allgather[] = {.833, 2.25, 4.70, 9.00, 16.6, 30.4};
  for (std::size_t i = 0; i < std::size(tree_over_allgather); ++i) {
    check_switch(ar_topk_tree_cost, topk_allgather_cost, ranks[i + 1], tree_over_allgather[i]);
  }
}

TEST_CASE("costs of AR-Topk for ResNet18 on 8 ranks", "[ar-topk][cost]") {
  const SparseShape shape = shape_of(8, 46.758, 0.1);
  const double beta = 1 / (10 * gigabits);
  CHECK(std::fabs(topk_allgather_cost(shape, 1e-3, beta) - 55.4e-3) < 0.1e-3);
  CHECK(std::fabs(ar_topk_ring_cost(shape, 1e-3, beta) - 34.8e-3) < 0.1e-3);
  CHECK(std::fabs(ar_topk_tree_cost(shape, 1e-3, beta) - 42.7e-3) < 0.1e-3);
}

// Table VI, whose fastest cells are: a(llgather), r(ing), t(ree).
TEST_CASE("the cheapest way is the one that the paper has measured", "[ar-topk][cost]") {
  const double megabytes[] = {46.758, 100, 240, 532};
  const double densities[] = {0.1, 0.01, 0.001};
  const double speeds[] = {10, 5, 1};
  const std::string fastest[] = {"rrr aar aaa", "rrr atr aaa", "rrr rrr aar", "rrr rrr aar"};
  for (std::size_t model = 0; model < 4; ++model) {
    std::string cheapest;
    for (const double density : densities) {
      if (!cheapest.empty()) cheapest += ' ';
      for (const double speed : speeds) {
        const SparseShape shape = shape_of(8, megabytes[model], density);
        const double beta = 1 / (speed * gigabits);
        const double gather = topk_allgather_cost(shape, 1e-3, beta);
        const double ring = ar_topk_ring_cost(shape, 1e-3, beta);
        const double tree = ar_topk_tree_cost(shape, 1e-3, beta);
        cheapest += gather < std::min(ring, tree) ? 'a' : (ring < tree ? 'r' : 't');
      }
    }
    CHECK(cheapest == fastest[model]);
  }
}

TEST_CASE("indices along a chain cost the same bytes for any number of ranks", "[ar-topk][cost]") {
  const double beta = 1e-9;
  SparseShape shape = shape_of(8, 400, 0.01);
  shape.parcels = 64;
  const double few = ar_topk_cost(shape, 0, beta);
  CHECK(few < ar_topk_ring_cost(shape, 0, beta));
  shape.ranks = 16;
  CHECK(ar_topk_cost(shape, 0, beta) < 1.2 * few);
  CHECK(ar_topk_ring_cost(shape, 0, beta) > ar_topk_cost(shape, 0, beta));
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

TEST_CASE("AR-Topk in several parcels costs what its model says", "[ar-topk][cost]") {
  constexpr std::size_t block = EncodeIndicesKernel::block_elements;
  for (const char* keys : elections) {
    for (const int ranks : {2, 4, 8, 17}) {
      check_cost(case_of(ranks, 4 * block, keys));
      // More messages than channels hold.
      if (ranks < 8 || keys == elections[0]) check_cost(case_of(ranks, 12 * block, keys));
    }
  }
}

}  // namespace pith::test
