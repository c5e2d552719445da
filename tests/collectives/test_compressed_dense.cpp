// Where bypass=auto makes calls dense, and what coded values cost. What dense specs give:
// test_schemes.cpp.

#include <set>

#include "collectives/sparse/coded_cost.hpp"
#include "collectives/varying/varying_cost.hpp"
#include "kernels/scalar.hpp"
#include "model/bypass.hpp"
#include "model/nominal.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

TEST_CASE("what is faster dense", "[sparse]") {
  const auto faster = [](const char* spec, std::size_t count, int ranks, bool views) {
    return is_faster_dense(*Spec::parse(spec), count, ranks,
                           views ? nominal::memory : nominal::wire);
  };
  CHECK_FALSE(faster("topk:density=1", 1000, 1, true));
  CHECK_FALSE(faster("topk:density=0.01", 0, 4, true));
  for (const bool views : {false, true}) {
    CHECK(faster("topk:density=0.9", 1'000'000, 2, views));
    CHECK(faster("topk:density=0.1", 1'000'000, 64, views));
    CHECK(faster("ar-topk:density=0.9", 1'000'000, 8, views));
  }
  CHECK_FALSE(faster("topk:density=0.01", 10'000'000, 8, false));
  CHECK_FALSE(faster("topk:density=0.001", 10'000'000, 64, false));
  CHECK_FALSE(faster("ar-topk:density=0.01", 10'000'000, 64, false));
}

TEST_CASE("coded values cost what their model says", "[compressed][cost]") {
  for (const std::size_t count : {std::size_t{1000}, std::size_t{1} << 18, std::size_t{2100000}}) {
    for (const int ranks : {2, 4, 8, 17}) {
      for (const char* spec : {"bf16", "int8", "sign", "efsign", "onebit"}) {
        SparseCase c;
        c.ranks = ranks;
        c.counts = {count};
        c.spec = spec;
        SparseProgram program(c);
        const Spec parsed = *Spec::parse(spec);
        const CodedShape shape{ranks, count, parsed.scheme->coding(parsed)};
        for (const LinkCost& link : {LinkCost{2e-6, 1e-9, 0}, {1e-4, 1e-9, 0}, {1e-2, 1e-9, 0}}) {
          SimConfig config;
          config.link = {link.alpha, link.beta};
          World world(world_of(c, config));
          REQUIRE(program.step(world) == "");
          const double off = world.elapsed_s() / coded_cost(shape, link) - 1;
          INFO(describe(c) << ", alpha " << link.alpha << ": off by " << off);
          CHECK(std::fabs(off) < 0.1);
        }
      }
    }
  }
}

// By the bytes that were sent.
TEST_CASE("values of varying length cost what their model says", "[compressed][cost]") {
  for (const std::size_t count : {std::size_t{1000}, std::size_t{1} << 18, std::size_t{2100000}}) {
    for (const int ranks : {2, 4, 8}) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {count};
      c.spec = "bounded";
      SparseProgram program(c);
      for (const LinkCost& link : {LinkCost{2e-6, 1e-9, 0}, {1e-4, 1e-9, 0}, {1e-2, 1e-9, 0}}) {
        SimConfig config;
        config.link = {link.alpha, link.beta};
        World world(world_of(c, config));
        REQUIRE(program.step(world) == "");
        const double halves = 2 * (ranks - 1) / double(ranks) * double(count);
        const double bytes = double(program.compressor(0).stats.bytes_sent) / halves;
        CHECK(bytes < 1.7);
        const double off = world.elapsed_s() / varying_cost(bytes, count, ranks, link) - 1;
        INFO(describe(c) << ", alpha " << link.alpha << ": off by " << off);
        CHECK(std::fabs(off) < 0.15);  // messages differ
      }
    }
  }
}

// So that vectors and runs with seeds of their own have errors of their own.
TEST_CASE("no two seeds and steps draw alike", "[compressed]") {
  std::set<std::vector<float>> results;
  for (int seed = 0; seed < 4; ++seed) {
    SparseCase c;
    c.ranks = 1;
    c.spec = fmt::format("qsgd:seed={}", seed);
    SparseProgram program(c);
    World world(world_of(c));
    for (int step = 0; step < 4; ++step) {
      program.draw(0);
      REQUIRE(program.step(world) == "");
      results.insert(program.result(0));
    }
  }
  CHECK(results.size() == 16);
}

}  // namespace pith::test
