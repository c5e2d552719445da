// Groups: many small tensors get what each would get alone, and cost the messages of one.
#include "tests/catch.hpp"
#include "tests/collectives/host_layouts.hpp"

namespace pith::test {

namespace {

// A group beside one call for each of its tensors; empty is good.
std::string run_beside_single_calls(const SparseCase& c, int steps) {
  SparseProgram group(c);
  World world(world_of(c));
  std::vector<std::unique_ptr<SparseProgram>> singles;
  std::vector<std::unique_ptr<World>> worlds;
  for (const std::size_t count : c.counts) {
    SparseCase one = c;
    one.counts = {count};
    singles.push_back(std::make_unique<SparseProgram>(one));
    worlds.push_back(std::make_unique<World>(world_of(one)));
  }
  for (int step = 0; step < steps; ++step) {
    group.draw(static_cast<std::uint64_t>(step));
    std::string failure = group.step(world);
    for (std::size_t t = 0; t < singles.size() && failure.empty(); ++t) {
      for (int r = 0; r < c.ranks; ++r) singles[t]->gradient(r) = group.gradient(r, t);
      failure = singles[t]->step(*worlds[t]);
      if (group.result(0, t) != singles[t]->result(0)) failure = "another result";
      for (int r = 0; r < c.ranks; ++r) {
        if (group.residual(r, t) != singles[t]->residual(r)) failure = "another residual";
      }
    }
    if (!failure.empty()) return fmt::format("{}, step {}: {}", describe(c), step, failure);
  }
  return world.leaks();
}

// What a step takes where messages cost time, and bytes none.
double latencies_of(const SparseCase& c) {
  SparseProgram program(c);
  SimConfig config;
  config.link = {1e-3, 0};
  const auto world = world_with_hosts(c, config);
  REQUIRE(program.begin(*world, 2) == "");
  REQUIRE(program.step(*world) == "");
  return world->elapsed_s();
}

}  // namespace

TEST_CASE("a group of top-k calls gets what single calls get", "[sparse][group]") {
  for (const char* exchange : {"direct", "ring", "split", "recursive-doubling"}) {
    for (const char* values : {"f32", "bf16"}) {
      for (const int ranks : {1, 2, 3, 5, 8, 13}) {
        SparseCase c;
        c.ranks = ranks;
        c.counts = {3, 0, 1000, 1, 64, 2000, 0, 17};
        c.spec = fmt::format("topk:density=0.05,exchange={},values={}", exchange, values);
        CHECK(run_beside_single_calls(c, 3) == "");
      }
    }
  }
}

TEST_CASE("a group whose vectors are longer than a block of the index code", "[sparse][group]") {
  for (const char* exchange : {"split", "recursive-doubling"}) {
    SparseCase c;
    c.ranks = 3;
    c.counts = {100, 150000, 7, 70000};
    c.spec = fmt::format("topk:density=0.01,exchange={}", exchange);
    CHECK(run_beside_single_calls(c, 3) == "");
  }
}

TEST_CASE("small tensors in a group cost the messages of one", "[sparse][group]") {
  for (const char* spec :
       {"topk:density=0.1,exchange=direct", "topk:density=0.1,exchange=ring",
        "topk:density=0.1,exchange=split", "topk:density=0.1,exchange=recursive-doubling",
        "ar-topk:density=0.1", "ar-topk:density=0.1,election=variance", "exdyna:density=0.1",
        "micro:density=0.1", "deft:density=0.1",
        "topk:density=0.1,exchange=split,hierarchy=host"}) {
    for (const int ranks : {2, 6}) {
      SparseCase c;
      c.ranks = ranks;
      c.spec = spec;
      if (c.spec.ends_with("host")) c.hosts = {0, 1, 0, 1, 2, 2};
      c.hosts.resize(c.hosts.empty() ? 0 : static_cast<std::size_t>(ranks));
      c.counts = {480};
      const double one = latencies_of(c);
      c.counts.assign(12, 40);
      INFO(describe(c));
      CHECK(latencies_of(c) == Approx(one).epsilon(1e-9));
    }
  }
}

}  // namespace pith::test
