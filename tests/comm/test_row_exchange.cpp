// Sums of sparse rows in the simulator: delays, deaths and aborts at any step.
#include "tests/catch.hpp"
#include "tests/collectives/interruption.hpp"
#include "tests/comm/rows_program.hpp"

namespace pith::test {

namespace {

SimConfig world_of(const RowsCase& c) {
  SimConfig config = c.sim;
  config.ranks = c.ranks;
  return config;
}

std::string run(const RowsCase& c) {
  World world(world_of(c));
  RowsProgram program(c);
  for (const Error& error :
       run_ranks(world, [&](Call&call, int rank) { return program.start(call, rank); })) {
    if (error) return error.message();
  }
  for (int rank = 0; rank < c.ranks; ++rank) {
    std::string failure = program.check(rank);
    if (!failure.empty()) return failure;
  }
  return world.leaks();
}

// All ranks end, and those that succeed have the whole sum.
bool interrupt(const RowsCase& c, int, const Interruption& where, std::string& failure) {
  World world(world_of(c));
  RowsProgram program(c);
  const auto [reached, errors] = interrupt_call(program, world, where);
  for (int rank = 0; rank < c.ranks && failure.empty(); ++rank) {
    const Error& error = errors[static_cast<std::size_t>(rank)];
    if (!world.ended(rank)) failure = fmt::format("rank {} never ends", rank);
    if (error.code() == Code::internal) failure = error.message();
    if (!error && failure.empty()) failure = program.check(rank);
  }
  failure += world.leaks();
  return reached;
}

}  // namespace

TEST_CASE("sums of sparse rows, whose messages come in any order", "[rows]") {
  for (const int ranks : {2, 3, 8, 17}) {
    for (const bool average : {false, true}) {
      RowsCase c;
      c.ranks = ranks;
      c.average = average;
      c.sim.jitter_s = 1e-3;
      INFO(describe(c));
      CHECK(run(c) == "");
    }
  }
}

TEST_CASE("an end at any step of a sum of sparse rows", "[rows][abort]") {
  for (const int ranks : {2, 3, 4}) {
    RowsCase c;
    c.ranks = ranks;
    c.sim.jitter_s = 1e-5;
    CHECK(interrupt_everywhere(c, 0, sanitized ? 5 : 1, interrupt) == "");
  }
}

TEST_CASE("sums of sparse rows of many ranks, whose messages come in any order", "[rows]") {
  RowsCase c;
  c.ranks = full && !sanitized ? 256 : 32;
  c.rows = 3000;
  c.sim.jitter_s = 1e-3;
  INFO(describe(c));
  CHECK(run(c) == "");
  World world(world_of(c));
  RowsProgram program(c);
  const std::uint64_t steps = steps_of_call(program, world);
  // At the begin and in each of the four exchanges.
  CHECK(interrupt_everywhere(c, 0, steps / 6 + 1, interrupt) == "");
}

}  // namespace pith::test
