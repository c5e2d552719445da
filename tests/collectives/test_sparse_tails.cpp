// What is sent when all has been looked at, in messages whose hops overlap, and what is written
// before.
#include <cstring>

#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// Selecting takes its time here: 12 bytes of work an element.
constexpr std::size_t count = std::size_t{1} << 20;
constexpr double select_s = 10e-3;

SimConfig gigabit() {
  SimConfig config;
  config.link = {20e-6, 8e-9};
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

// How long a call goes on after its ranks have selected, and the bytes that a rank has sent.
struct Rest {
  double seconds = 0;
  std::uint64_t sent = 0;
};

Rest rest_of(const SparseCase& c, double late_s) {
  SparseProgram program(c);
  World world(world_of(c, gigabit()));
  world.start_s = [&](int rank) { return rank == 0 ? late_s : 0; };
  REQUIRE(program.begin(world, 3) == "");
  REQUIRE(program.step(world) == "");
  return {world.elapsed_s() - late_s - select_s, program.compressor(1).stats.bytes_sent};
}

}  // namespace

TEST_CASE("the tails of a late rank go round the ring behind each other", "[sparse][tails]") {
  for (const int ranks : {3, 4, 8}) {
    const Rest rest = rest_of(case_of(ranks, "topk:density=0.01,exchange=ring"), 5e-3);
    WARN(ranks << " ranks: " << rest.seconds * 1e6 << " us, wire " << double(rest.sent) * 8e-3);
  }
}

TEST_CASE("the tails of a leader go down the chain behind each other", "[ar-topk][tails]") {
  for (const int ranks : {3, 4, 8}) {
    const Rest rest = rest_of(case_of(ranks, "ar-topk:density=0.01"), 0);
    WARN(ranks << " ranks: " << rest.seconds * 1e6 << " us, wire " << double(rest.sent) * 8e-3);
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
