// Groups: many small tensors cost the messages of one. What they get: test_schemes.cpp.
#include "tests/catch.hpp"
#include "tests/collectives/host_layouts.hpp"

namespace pith::test {

namespace {

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

TEST_CASE("small tensors in a group cost the messages of one", "[sparse][group]") {
  for (const char* spec :
       {"topk:density=0.1,exchange=direct", "topk:density=0.1,exchange=ring",
        "topk:density=0.1,exchange=split", "topk:density=0.1,exchange=recursive-doubling",
        "ar-topk:density=0.1", "ar-topk:density=0.1,election=variance", "exdyna:density=0.1",
        "micro:density=0.1", "deft:density=0.1", "ok-topk:density=0.1", "gtopk:density=0.1", "none",
        "bf16", "topk:density=0.1,exchange=split,hierarchy=host"}) {
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
