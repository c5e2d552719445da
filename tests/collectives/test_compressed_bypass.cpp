// bypass=auto with a fixed density in virtual time: ranks take the faster way, all the same one,
// and no gradient is lost.
#include <optional>
#include <string>
#include <vector>

#include "model/compressed_cost.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/scheme_conformance.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

SimConfig link_of(double bits_per_s, double latency_s) {
  SimConfig config;
  config.link = {latency_s, 8 / bits_per_s};
  return config;
}

const SimConfig slow = link_of(0.1e9, 50e-6);
const SimConfig fast = link_of(1000e9, 2e-6);

// Calls of a vector whose times are those of the simulated network, and of nominal cores.
struct Vector {
  explicit Vector(const char* spec, int ranks = 4, std::size_t count = 100'000) {
    c.ranks = ranks;
    c.counts = {count};
    c.spec = spec;
    c.integers = true;
    program.emplace(c);
    given.resize(count);
    delivered.resize(count);
  }

  // Ranks take this time longer each, by rank.
  void calls(int n, const SimConfig& config, double skew_s = 0) {
    World world(world_of(c, config));
    for (int i = 0; i < n; ++i) call(world, skew_s);
  }
  void call(World& world, double skew_s) {
    program->draw(step++);
    for (int r = 0; r < c.ranks; ++r) add(given, program->gradient(r));
    REQUIRE(program->step(world) == "");
    add(delivered, program->result(0));
    const bool dense = is_dense(0);
    dense_calls += dense ? 1 : 0;
    const Spec& spec = program->compressor(0).spec();
    const double work_s = dense ? dense_cost(c.counts[0], c.ranks).work_s
                                : compressed_cost(spec, spec.density, c.counts[0], c.ranks).work_s;
    for (int r = 0; r < c.ranks; ++r) {
      Compressor& compressor = program->compressor(r);
      REQUIRE(compressor.stats.bypassed == dense);
      REQUIRE(compressor.digest() == program->compressor(0).digest());
      REQUIRE(compressor.bypass_control.times == program->compressor(0).bypass_control.times);
      CompressorStats::Timed& timed = compressor.stats.timed;
      if (timed.seconds > 0 && timed.step + 1 == compressor.step) {
        timed.seconds = world.elapsed_s() + work_s + skew_s * r;
        timed_calls += r == 0 ? 1 : 0;
      }
    }
  }
  int dense_in(int n, const SimConfig& config, double skew_s = 0) {
    const int before = dense_calls;
    calls(n, config, skew_s);
    return dense_calls - before;
  }
  bool is_dense(int rank) { return program->compressor(rank).stats.bypassed; }
  static void add(std::vector<double>& sum, const std::vector<float>& values) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += double(values[i]);
  }
  // What was not delivered is in the residuals: sums are exact.
  void check_nothing_lost() {
    std::vector<double> all = delivered;
    for (int r = 0; r < c.ranks; ++r) add(all, program->residual(r));
    CHECK(all == given);
  }

  SparseCase c;
  std::optional<SparseProgram> program;
  std::vector<double> given;
  std::vector<double> delivered;
  std::uint64_t step = 0;
  int dense_calls = 0;
  int timed_calls = 0;
};

std::string with_auto(const char* spec) { return std::string(spec) + ",bypass=auto"; }

}  // namespace

TEST_CASE("calls end as the link has it, whatever is nominal", "[sparse][bypass]") {
  struct Expected {
    const char* spec;
    int ranks;
    const SimConfig* link;
    bool dense;
  };
  const Expected all[] = {
      {"topk:density=0.01", 4, &slow, false},    {"topk:density=0.01", 4, &fast, true},
      {"topk:density=0.1", 8, &slow, false},     {"ar-topk:density=0.1", 4, &fast, true},
      {"ar-topk:density=0.01", 4, &slow, false}, {"exdyna:density=0.01", 3, &slow, false},
      {"deft:density=0.1", 3, &fast, true},
  };
  for (const Expected& one : all) {
    INFO(one.spec << ", " << one.link->link.s_per_byte << " s/byte");
    const std::string spec = with_auto(one.spec);
    Vector vector(spec.c_str(), one.ranks);
    vector.calls(60, *one.link);
    CHECK(vector.dense_in(20, *one.link) == (one.dense ? 20 : 0));
    vector.check_nothing_lost();
  }
}

TEST_CASE("a link that changes is followed, and ranks need not agree on times",
          "[sparse][bypass]") {
  const double skew_s = GENERATE(0.0, 1e-4);
  Vector vector("topk:density=0.1,bypass=auto", 3);
  for (int round = 0; round < 2; ++round) {
    vector.calls(80 + 41 * round, slow, skew_s);
    CHECK(vector.dense_in(20, slow, skew_s) <= 3);
    vector.calls(80 + 41 * round, fast, skew_s);
    CHECK(vector.dense_in(20, fast, skew_s) >= 17);
  }
  CHECK(vector.timed_calls < 80);
  vector.check_nothing_lost();
}

TEST_CASE("with bypass=never nothing is agreed on", "[sparse][bypass]") {
  Vector vector("topk:density=0.01,bypass=never");
  vector.calls(20, fast);
  CHECK(vector.dense_calls == 0);
  CHECK(vector.timed_calls == 0);
}

TEST_CASE("a group's first vector stands for all, and other groups are timed anew",
          "[sparse][bypass]") {
  SparseCase c;
  c.ranks = 3;
  c.counts = {30'000, 40'000};
  c.spec = "topk:density=0.01,bypass=auto";
  SparseProgram program(c);
  World world(world_of(c, fast));
  REQUIRE(program.begin(world, 3) == "");
  CHECK(program.compressor(0, 0).bypass_control.count == 70'000);
  CHECK(program.compressor(0, 0).bypass_control.timed == 2);
  CHECK(program.compressor(0, 1).bypass_control.count == 0);

  for (int r = 0; r < c.ranks; ++r) program.compressor(r, 0).bypass_control.count = 30'000;
  REQUIRE(program.step(world) == "");
  CHECK(program.compressor(0, 0).bypass_control.count == 70'000);
  CHECK(program.compressor(0, 0).bypass_control.timed == 0);
  for (int r = 0; r < c.ranks; ++r) program.compressor(r, 0).bypass_control.next = 1;
  REQUIRE(program.step(world) == "");
  CHECK(program.compressor(0, 0).bypass_control.next == program.compressor(0, 0).step);
}

TEST_CASE("an undone call leaves no time", "[sparse][bypass]") {
  Vector vector("topk:density=0.01,bypass=auto");
  World world(world_of(vector.c, fast));
  for (int i = 0; i < 3; ++i) vector.call(world, 0);
  const BypassControl before = vector.program->compressor(0).bypass_control;
  const std::uint32_t completed = world.call(0).number();
  vector.call(world, 0);
  for (int r = 0; r < vector.c.ranks; ++r) {
    Compressor& compressor = vector.program->compressor(r);
    CHECK(compressor.bypass_control.sampled == before.sampled + 1);
    HostCompute host;
    compressor.return_after(host, completed);
    CHECK(compressor.bypass_control.sampled == before.sampled);
    CHECK(compressor.step == 3);
  }
  vector.call(world, 0);
  CHECK(vector.program->compressor(0).bypass_control.sampled == before.sampled);
  for (int i = 0; i < 20; ++i) vector.call(world, 0);
  CHECK(vector.is_dense(0));
}

TEST_CASE("an abort of a call that begins with an agreement loses nothing", "[sparse][bypass]") {
  SparseCase c;
  c.ranks = 3;
  c.counts = {2000};
  c.spec = "topk:density=0.1,bypass=auto";
  CHECK(check_interrupted(c, 2, 1) == "");
}

TEST_CASE("another communicator has other times", "[sparse][bypass]") {
  Vector vector("topk:density=0.01,bypass=auto");
  vector.calls(12, fast);
  CHECK(vector.is_dense(0));
  for (int r = 0; r < vector.c.ranks; ++r) vector.program->compressor(r).forget_delivered();
  vector.calls(1, fast);
  CHECK_FALSE(vector.is_dense(0));
}

}  // namespace pith::test
