// Aborts at every step, and what the simulator costs at size.
#include <ctime>

#include "tests/catch.hpp"
#include "tests/sim/programs.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

namespace {

AbortReport abort_everywhere(SimConfig config, Allreduce::Algorithm algorithm, std::size_t count) {
  auto make = [&config, algorithm, count]() -> std::unique_ptr<Program> {
    return std::make_unique<Allreduce>(algorithm, config.ranks, count);
  };
  return inject_aborts(config, make);
}

Task<Error> ignores_the_abort(Call& call, Bytes) {
  Channel<int, 1> never(call.scheduler());
  co_await never.pop();
  co_return Error();
}

}  // namespace

TEST_CASE("a coroutine that an abort does not end is found", "[sim][abort]") {
  SimConfig config;
  config.ranks = 2;
  const AbortReport report = abort_everywhere(config, ignores_the_abort, 1);
  CHECK(report.failure.find("rank 0 never ends") != std::string::npos);
}

TEST_CASE("an abort at any step leaves nothing behind", "[sim][abort]") {
  SimConfig config;
  config.ranks = 4;
  config.gamma_s_per_byte = 1e-10;
  for (const bool pieces : {false, true}) {
    for (const bool late : {false, true}) {
      config.slot_bytes = pieces ? 64 : std::size_t{64} << 10;
      config.late_kernels = late;
      for (const Allreduce::Algorithm algorithm : {ring, doubling}) {
        const AbortReport report = abort_everywhere(config, algorithm, 128);
        CHECK(report.failure == "");
        CHECK(report.points > 50);
      }
    }
  }
}

TEST_CASE("an abort at any step of a traced call leaves nothing behind", "[sim][abort][trace]") {
  SimConfig config;
  config.ranks = 3;
  config.gamma_s_per_byte = 1e-10;
  for (const bool late : {false, true}) {
    config.late_kernels = late;
    auto make = [&config]() -> std::unique_ptr<Program> {
      return std::make_unique<Allreduce>(ring, config.ranks, 126);
    };
    AbortOptions options;
    options.traced = true;
    const AbortReport report = inject_aborts(config, make, options);
    CHECK(report.failure == "");
    CHECK(report.points > 30);
  }
}

TEST_CASE("a large simulated allreduce", "[sim]") {
  SimConfig config;
  config.ranks = 128;
  World world(config);
  Allreduce program(ring, config.ranks, 256);
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
  CHECK(world.leaks().empty());
}

namespace {

double cpu_s(Allreduce::Algorithm algorithm, int ranks, std::size_t count) {
  SimConfig config;
  config.ranks = ranks;
  World world(config);
  Allreduce program(algorithm, ranks, count);
  const std::clock_t start = std::clock();
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

}  // namespace

// Hidden: it measures. 2.1 million messages, and 49 thousand among many ranks.
TEST_CASE("speed of the simulator", "[.speed]") {
  const double ring_s = cpu_s(ring, 1024, 1024);
  const double doubling_s = cpu_s(doubling, 4096, 16);
  WARN("ring of 1,024: " << ring_s << " s; recursive doubling of 4,096: " << doubling_s << " s");
  CHECK(ring_s < 5);
  CHECK(doubling_s < 0.5);
}

}  // namespace pith::test
