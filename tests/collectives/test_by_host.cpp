// hierarchy=host on made-up hosts: the flat scheme on what hosts have, exactly; and its limits, one
// rank a host and one host.
#include <algorithm>

#include <fmt/ranges.h>

#include "collectives/sparse/by_host_cost.hpp"
#include "model/bypass.hpp"
#include "model/nominal.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/host_layouts.hpp"

namespace pith::test {

namespace {

// Those whose residuals of integers are integers, so that no order of additions shows: not
// adaptive.
constexpr const char* specs[] = {
    "topk:density=0.05",
    "topk:density=0.05,exchange=ring",
    "topk:density=0.05,exchange=recursive-doubling",
    "topk:density=0.05,exchange=split",
    "ok-topk:density=0.05",
    "gtopk:density=0.05",
    "threshold:value=0.3",
    "sidco:density=0.05",
    "ar-topk:density=0.05",
    "ar-topk:density=0.05,election=variance",
    "ar-topk:density=0.05,election=variance-lagged",
    "ar-topk:density=0.05,reduction=tree,election=variance",
    "exdyna:density=0.05",
    "exdyna:density=0.05,rule=released",
    "micro:density=0.05,reduction=ring",
    "deft:density=0.05",
};

std::string by_host(const std::string& spec) { return spec + ",hierarchy=host"; }

// Beside the flat scheme.
std::string run_beside_twins(const SparseCase& c, int steps, const SimConfig& config = {}) {
  SparseProgram program(c);
  const auto world = world_with_hosts(c, config);
  SliceTwins twins(c);
  for (int step = 0; step < steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    std::string failure = program.step(*world);
    if (failure.empty()) failure = twins.check(program);
    if (!failure.empty()) {
      return fmt::format("{}, {} on hosts {}: {}", describe(c), step, fmt::join(c.hosts, ","),
                         failure);
    }
  }
  return world->leaks();
}

}  // namespace

TEST_CASE("hierarchy=host is the flat scheme on the sums of hosts", "[sparse][by-host]") {
  std::size_t turn = 0;
  for (int ranks = 3; ranks <= 17; ++ranks) {
    for (const std::vector<int>& hosts : layouts_of(ranks)) {
      if (!has_several_hosts(hosts)) continue;
      for (std::size_t i = 0; i < 4; ++i, ++turn) {
        SparseCase c;
        c.ranks = ranks;
        c.hosts = hosts;
        c.integers = true;
        c.average = turn % 3 == 0;
        c.counts = {turn % 2 == 0 ? std::size_t{1500} : std::size_t{7}};
        c.spec = by_host(specs[turn % std::size(specs)]);
        CHECK(run_beside_twins(c, 4) == "");
      }
    }
  }
}

namespace {

struct Walk {
  std::vector<int> hosts;
  std::vector<std::size_t> counts;
  int steps;
  std::size_t chunk_bytes;
  SimConfig config = {};  // when messages come
};

SimConfig late_and_in_pieces() {
  SimConfig config;
  config.kernel_s = 1e-7;
  config.slot_bytes = 48;
  config.jitter_s = 1e-4;
  return config;
}

std::string walk_beside_twins(const std::string& spec, const Walk& walk) {
  SparseCase c;
  c.ranks = static_cast<int>(walk.hosts.size());
  c.hosts = walk.hosts;
  c.integers = true;
  c.counts = walk.counts;
  c.chunk_bytes = walk.chunk_bytes;
  c.spec = by_host(spec);
  return run_beside_twins(c, walk.steps, walk.config);
}

}  // namespace

TEST_CASE("every scheme by host, in every way", "[sparse][by-host]") {
  const std::size_t whole = SparseCase().chunk_bytes;
  const Walk many_steps{{0, 0, 1, 1, 1, 2, 2}, {2000}, 20, whole};
  const Walk others[] = {{{0, 1, 0, 1, 1}, {10, 0, 3000, 1, 500, 3}, 6, whole},
                         {{0, 1, 0, 1, 1}, {0, 0}, 2, whole},
                         {{0, 1, 1, 0, 1, 2}, {900, 40}, 4, 256, late_and_in_pieces()}};
  for (const std::string spec : specs) {
    for (const char* values : {"", ",values=bf16", ",values=f16"}) {
      CHECK(walk_beside_twins(spec + values, many_steps) == "");
    }
    for (const Walk& walk : others) CHECK(walk_beside_twins(spec, walk) == "");
  }
  for (const char* spec : {"topk:density=0.01", "ar-topk:density=0.01", "exdyna:density=0.01"}) {
    CHECK(walk_beside_twins(spec, {{0, 0, 1, 1}, {400000}, 3, 4096}) == "");
  }
  std::vector<int> hosts_of_many(75, 1);
  std::fill_n(hosts_of_many.begin(), 35, 0);
  CHECK(walk_beside_twins("exdyna:density=0.05", {hosts_of_many, {1000}, 3, whole}) == "");
}

TEST_CASE("one rank a host is the flat scheme, bit for bit", "[sparse][by-host]") {
  for (int ranks = 1; ranks <= 17; ranks += 4) {
    for (const char* spec : specs) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {700, 30};
      c.spec = spec;
      SparseProgram flat(c);
      const auto flat_world = world_with_hosts(c);
      for (int r = 0; r < ranks; ++r) c.hosts.push_back(r);
      c.spec = by_host(spec);
      SparseProgram program(c);
      const auto world = world_with_hosts(c);
      for (std::uint64_t step = 0; step < 5; ++step) {
        flat.draw(step);
        program.draw(step);
        REQUIRE(flat.step(*flat_world) == "");
        REQUIRE(program.step(*world) == "");
        for (std::size_t t = 0; t < 2; ++t) {
          CHECK(program.result(0, t) == flat.result(0, t));
          for (int r = 0; r < ranks; ++r) CHECK(program.residual(r, t) == flat.residual(r, t));
        }
      }
    }
  }
}

TEST_CASE("on one host calls are dense", "[sparse][by-host]") {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    SparseCase c;
    c.ranks = ranks;
    c.integers = true;
    c.hosts.assign(static_cast<std::size_t>(ranks), 0);
    c.spec = by_host(specs[static_cast<std::size_t>(ranks)]);
    SparseProgram program(c);
    const auto world = world_with_hosts(c);
    for (std::uint64_t step = 0; step < 3; ++step) {
      program.draw(step);
      REQUIRE(program.step(*world) == "");
      std::vector<float> sum(1000);
      for (int r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += program.gradient(r)[i];
        CHECK(program.residual(r) == std::vector<float>(1000));
        CHECK(program.compressor(r).stats.bypassed);
      }
      CHECK(program.result(0) == sum);
    }
  }
}

namespace {

// One step of ranks on hosts with fast links inside and slow ones between.
double seconds_of(const std::string& spec, const std::vector<int>& hosts) {
  SparseCase c;
  c.ranks = static_cast<int>(hosts.size());
  c.hosts = hosts;
  c.counts = {1 << 18};
  c.spec = spec;
  SimConfig config;
  config.link_of = [hosts](int from, int to) {
    const auto at = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
    return at(from) == at(to) ? SimLink{1e-6, 1e-11} : SimLink{5e-5, 8e-9};
  };
  SparseProgram program(c);
  const auto world = world_with_hosts(c, config);
  double seconds = 0;
  for (std::uint64_t step = 0; step < 3; ++step) {
    program.draw(step);
    REQUIRE(program.step(*world) == "");
    seconds = world->elapsed_s();
  }
  return seconds;
}

}  // namespace

TEST_CASE("by host, few bytes leave a host", "[sparse][by-host]") {
  std::vector<int> hosts;
  for (int r = 0; r < 16; ++r) hosts.push_back(r / 4);
  for (const char* spec : {"topk:density=0.05", "exdyna:density=0.05", "deft:density=0.05"}) {
    const double flat = seconds_of(spec, hosts);
    const double by = seconds_of(by_host(spec), hosts);
    INFO(spec << ": " << flat * 1e3 << " ms flat, " << by * 1e3 << " ms by host");
    CHECK(by < flat);
  }
}

TEST_CASE("what hierarchy=host costs", "[by-host]") {
  constexpr LinkCost inside{1e-6, 1e-10, 2e-10};
  ByHostShape shape;
  shape.count = 1000000;
  shape.pairs = 10000;
  shape.exchange = 0.5;
  CHECK(by_host_cost(shape, inside, true) == Approx(0.5));
  shape.ranks = 4;
  shape.slices = 4;
  // Three slices of 1 MB summed, three lists of 20 kB told, two latencies.
  CHECK(by_host_cost(shape, inside, true) == Approx(0.5 + 2e-6 + 3e6 * 2e-10 + 6e4 * 1e-10));
  CHECK(by_host_cost(shape, inside, false) ==
        Approx(0.5 + 2e-6 + 3e6 * 2e-10 + 6e4 * 1e-10 + 3e6 * 1e-10));
}

TEST_CASE("by host, small vectors are dense and large sparse ones are not", "[by-host]") {
  const std::vector<int> names = {0, 0, 1, 1, 2, 2};
  const Hosts hosts{std::span<const int>(names)};
  const Spec spec = *Spec::parse("exdyna:density=0.001,hierarchy=host");
  CHECK(is_faster_dense_by_host(spec, 100, hosts, nominal::wire));
  CHECK_FALSE(is_faster_dense_by_host(spec, std::size_t{1} << 24, hosts, nominal::wire));
  const Spec full = *Spec::parse("topk:density=1,hierarchy=host");
  CHECK(is_faster_dense_by_host(full, std::size_t{1} << 24, hosts, nominal::wire));
}

TEST_CASE("hosts are told apart by who is with whom", "[by-host]") {
  const auto of = [](std::vector<int> names) { return Hosts(std::span<const int>(names)); };
  const Hosts hosts = of({7, 7, 3, 7, 3});
  CHECK(hosts.count() == 2);
  CHECK(hosts.slices() == 2);
  CHECK(hosts.host_of(4) == 1);
  CHECK(hosts.index_of(3) == 2);
  CHECK(hosts.owner(1, 1) == 4);
  CHECK_FALSE(hosts.alone());
  CHECK(of({5, 1, 2}).alone());
  CHECK(hosts.key() == of({0, 0, 1, 0, 1}).key());
  CHECK(hosts.key() != of({0, 0, 1, 1, 1}).key());
  CHECK(of({0, 0}).key() != of({0, 0, 0}).key());
}

}  // namespace pith::test
