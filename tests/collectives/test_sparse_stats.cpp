// What compressors tell about a call: its times, what it gained, and which exchange it was.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

TEST_CASE("every scheme tells how long it looked at gradients", "[sparse][stats]") {
  for (const char* spec :
       {"topk", "topk:exchange=ring", "topk:exchange=split", "topk:exchange=recursive-doubling",
        "ar-topk", "ar-topk:election=variance", "ar-topk:election=variance,score=raw",
        "ar-topk:election=variance-lagged,score=raw", "exdyna:density=0.01",
        "exdyna:density=0.01,rule=intended", "micro:density=0.01", "deft:density=0.01"}) {
    SparseCase c;
    c.ranks = 3;
    c.counts = {50000};
    c.spec = spec;
    SparseProgram program(c);
    World world(world_of(c));
    for (std::uint64_t step = 0; step < 3; ++step) {
      program.draw(step);
      REQUIRE(program.step(world) == "");
      for (int r = 0; r < c.ranks; ++r) {
        const CompressorStats& stats = program.compressor(r).stats;
        INFO(spec << ", step " << step << ", rank " << r);
        CHECK(stats.select_seconds > 0);
        CHECK(stats.exchange_seconds > 0);
        const double sum = stats.select_seconds + stats.exchange_seconds;
        CHECK(std::fabs(sum - stats.total_seconds) < 1e-6 * stats.total_seconds);
      }
    }
  }
}

TEST_CASE("statistics of top-k name the exchange that was made", "[sparse][stats]") {
  struct Expected {
    const char* keys;
    int ranks;
    const char* name;
  };
  // Lists of 16-bit values that merge on their way would be rounded at every hop.
  const Expected all[] = {
      {"", 2, "topk_direct"},
      {"exchange=direct", 4, "topk_direct"},
      {"exchange=ring", 4, "topk_ring"},
      {"exchange=ring", 2, "topk_direct"},
      {"exchange=split", 4, "topk_split"},
      {"exchange=split,values=bf16", 4, "topk_split"},
      {"exchange=recursive-doubling", 4, "topk_recursive_doubling"},
      {"exchange=recursive-doubling,values=bf16", 4, "topk_ring"},
  };
  for (const Expected& one : all) {
    SparseCase c;
    c.ranks = one.ranks;
    c.counts = {1000, 0};
    c.spec = fmt::format("topk{}{}", *one.keys ? ":" : "", one.keys);
    SparseProgram program(c);
    World world(world_of(c));
    program.draw(0);
    REQUIRE(program.step(world) == "");
    for (const std::size_t tensor : {0, 1}) {
      INFO(c.spec << ", " << one.ranks << " ranks");
      CHECK(program.compressor(c.ranks - 1, tensor).stats.algorithm == one.name);
    }
  }
}

}  // namespace pith::test
