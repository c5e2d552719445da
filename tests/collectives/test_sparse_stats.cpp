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

// Against float64, whatever becomes of the squares in float32.
TEST_CASE("gain and residual hold for magnitudes of any size", "[sparse][stats]") {
  const float factors[] = {1e-40f, 1e-25f, 1, 1e25f, 1e37f};
  for (const char* spec : {"topk", "topk:exchange=split", "ar-topk", "ar-topk:election=variance",
                           "exdyna:density=0.01", "micro:density=0.01", "deft:density=0.01"}) {
    for (std::size_t first = 0; first < std::size(factors); ++first) {
      SparseCase c;
      c.ranks = 3;
      c.counts = {5000, 300};
      c.spec = spec;
      SparseProgram program(c);
      World world(world_of(c));
      program.draw(0);
      std::vector<double> all;
      for (int r = 0; r < c.ranks; ++r) {
        for (std::size_t t = 0; t < c.counts.size(); ++t) {
          double& squares = all.emplace_back();
          // Of the last rank every size at once.
          for (std::size_t i = 0; i < c.counts[t]; ++i) {
            const std::size_t size = r == 2 ? i % std::size(factors) : first;
            float& value = program.gradient(r, t)[i];
            value *= factors[size];
            squares += double(value) * double(value);
          }
        }
      }
      REQUIRE(program.step(world) == "");
      HostCompute host;
      for (int r = 0; r < c.ranks; ++r) {
        for (std::size_t t = 0; t < c.counts.size(); ++t) {
          INFO(spec << ", times " << factors[first] << ", rank " << r << ", tensor " << t);
          double kept = 0;
          for (const float value : program.residual(r, t)) kept += double(value) * double(value);
          const double seen = program.compressor(r, t).residual_squares(host);
          CHECK(std::fabs(seen - kept) <= 1e-12 * kept);
          const CompressorStats& stats = program.compressor(r, t).stats;
          const double before = all[static_cast<std::size_t>(r) * c.counts.size() + t];
          const double sent = before - kept;
          CHECK(std::fabs(stats.squares_sent - sent) <= 1e-6 * before);
          if (std::isnan(stats.squares_all)) continue;  // not all of it was read
          CHECK(std::fabs(stats.squares_all - before) <= 1e-12 * before);
        }
      }
    }
  }
}

}  // namespace pith::test
