// What is sent when all has been looked at, in messages whose hops overlap, and what is written
// before.
#include <cstring>

#include "core/record.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// Kernels take their time here: selecting 12 bytes of work an element, writing 4.
constexpr std::size_t count = std::size_t{1} << 20;
constexpr double select_s = 10e-3;
constexpr double write_s = select_s / 3;
constexpr double s_per_byte = 8e-9;  // of a link

SimConfig gigabit() {
  SimConfig config;
  config.link = {20e-6, s_per_byte};
  config.gamma_s_per_byte = select_s / double(12 * count);
  return config;
}

SparseCase case_of(int ranks, const char* spec) {
  SparseCase c;
  c.ranks = ranks;
  c.counts = {count};
  c.spec = spec;
  c.chunk_bytes = 4096;
  return c;
}

struct Times {
  double rest_s = 0;  // from the end of selecting on, kernels included
  double wire_s = 0;  // of what a rank has sent
};

// Of a call whose forecast is good; rank 0 begins later than the others.
Times times_of(const SparseCase& c, double late_s) {
  SparseProgram program(c);
  World world(world_of(c, gigabit()));
  world.start_s = [&](int rank) { return rank == 0 ? late_s : 0; };
  REQUIRE(program.begin(world, 12) == "");
  const SimTime begin = world.sim().now();
  REQUIRE(program.step(world) == "");
  double end_s = world.elapsed_s();
  for (int r = 0; r < c.ranks; ++r) {
    end_s = std::max(end_s, sim_seconds(world.compute(r).free_at() - begin));
  }
  return {end_s - late_s - select_s, double(program.compressor(1).stats.bytes_sent) * s_per_byte};
}

}  // namespace

// In one message they would take 2.2 and 2.9 lists' time.
TEST_CASE("the tails of a late rank go round the ring behind each other", "[sparse][tails]") {
  for (const int ranks : {4, 8}) {
    const Times times = times_of(case_of(ranks, "topk:density=0.01,exchange=ring"), 5e-3);
    const double list_s = times.wire_s / (ranks - 1);
    INFO(ranks << " ranks: " << times.rest_s << " s, of which " << times.wire_s << " s wire");
    CHECK(times.rest_s < write_s + times.wire_s + 2 * list_s);
  }
}

// In one message they would take 2.7 and 3.4 times as long as the wire, and what is written at the
// end comes after that.
TEST_CASE("a leader's tails go down the chain, and sums are written before", "[ar-topk][tails]") {
  for (const int ranks : {4, 8}) {
    const Times times = times_of(case_of(ranks, "ar-topk:density=0.01"), 0);
    INFO(ranks << " ranks: " << times.rest_s << " s, of which " << times.wire_s << " s wire");
    CHECK(times.rest_s < write_s + (ranks == 4 ? 2.3 : 3.0) * times.wire_s);
  }
}

// A rank relays nothing while a kernel runs.
TEST_CASE("no pass over gradients is long", "[sparse][tails]") {
  for (const char* spec :
       {"topk:density=0.01", "ar-topk:density=0.01", "ar-topk:density=0.01,election=variance",
        "ar-topk:density=0.01,election=variance-lagged", "exdyna:density=0.01"}) {
    SparseCase c = case_of(2, spec);
    c.chunk_bytes = std::size_t{1} << 20;
    SparseProgram program(c);
    World world(world_of(c));
    world.record();
    REQUIRE(program.begin(world, 3) == "");
    std::uint64_t longest = 0;
    for (int r = 0; r < c.ranks; ++r) {
      for (const Step& step : world.recorder(r).steps()) {
        if (step.name == "accumulate" || step.name == "select") {
          longest = std::max(longest, step.bytes);
        }
      }
    }
    INFO(spec);
    CHECK(longest > 0);
    CHECK(longest <= std::uint64_t{12} << 18);  // bytes an element
  }
}

// While other elements of the gradient are still looked at.
TEST_CASE("results that are written early may take the place of gradients", "[sparse][tails]") {
  for (const char* spec :
       {"topk:density=0.01", "topk:density=0.01,exchange=ring", "ar-topk:density=0.01",
        "ar-topk:density=0.01,values=bf16,election=variance", "ar-topk:density=0.01,score=raw",
        "ar-topk:density=0.01,reduction=ring", "exdyna:density=0.01", "deft:density=0.01"}) {
    SparseCase c;
    c.ranks = 3;
    c.counts = {200000, 10, 0, 70000};
    c.spec = spec;
    c.chunk_bytes = 1024;
    c.average = true;
    SparseProgram apart(c);
    c.in_place = true;
    SparseProgram in_place(c);
    World world(world_of(c));
    World other(world_of(c));
    for (std::uint64_t step = 0; step < 5; ++step) {
      apart.draw(step);
      in_place.draw(step);
      INFO(spec << ", step " << step);
      REQUIRE(apart.step(world) == "");
      REQUIRE(in_place.step(other) == "");
      for (std::size_t t = 0; t < c.counts.size(); ++t) {
        CHECK(apart.result(0, t) == in_place.result(0, t));
        CHECK(apart.residual(1, t) == in_place.residual(1, t));
      }
    }
  }
}

}  // namespace pith::test
