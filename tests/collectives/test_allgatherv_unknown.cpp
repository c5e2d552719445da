// The allgather whose lengths only the senders know.
#include <cmath>

#include "tests/catch.hpp"
#include "tests/collectives/unknown_program.hpp"

namespace pith::test {

namespace {

constexpr std::size_t chunk = 64;

struct Conditions {
  SimConfig config;
  std::function<double(int rank)> start_s;
  std::size_t backlog_bytes = std::size_t{1} << 20;
};

std::string run_unknown(const UnknownCase& c, Conditions conditions) {
  conditions.config.ranks = c.ranks();
  World world(conditions.config);
  world.start_s = conditions.start_s;
  for (int rank = 0; rank < world.size(); ++rank) {
    world.mailbox(rank).backlog_limit = conditions.backlog_bytes;
  }
  UnknownProgram program(c);
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  std::string failure;
  for (const Error& error : run_ranks(world, task)) {
    if (error && failure.empty()) failure = error.message();
  }
  if (failure.empty()) failure = program.check();
  if (failure.empty()) failure = world.leaks();
  return failure.empty() ? failure : describe(c) + "\n  " + failure;
}

// Lengths around multiples of the chunk, in an order that depends on `turn`.
UnknownCase some_case(int ranks, int turn) {
  constexpr std::size_t lengths[] = {0,         1,         chunk - 1,     chunk,        chunk + 1,
                                     2 * chunk, 3 * chunk, 3 * chunk + 7, 5 * chunk - 1};
  UnknownCase c;
  for (int rank = 0; rank < ranks; ++rank) {
    c.lengths.push_back(lengths[static_cast<std::size_t>(turn + rank * (turn % 4 + 1)) % 9]);
  }
  c.capacity = 5 * chunk;
  c.in_place = turn % 2 == 1;
  return c;
}

}  // namespace

TEST_CASE("messages of all lengths around the chunk size", "[unknown]") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int turn = 0; turn < 12; ++turn) {
      for (const bool late : {false, true}) {
        Conditions conditions;
        conditions.config.late_kernels = late;
        conditions.config.kernel_s = 1e-6;
        CHECK(run_unknown(some_case(ranks, turn), conditions) == "");
      }
    }
  }
}

TEST_CASE("every length up to the capacity, at the edges of the capacity", "[unknown]") {
  for (const std::size_t capacity :
       {std::size_t{0}, std::size_t{1}, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 1}) {
    for (std::size_t length = 0; length <= capacity; ++length) {
      UnknownCase c;
      c.lengths = {length, capacity, capacity - length};
      c.capacity = capacity;
      CHECK(run_unknown(c, {}) == "");
    }
  }
}

TEST_CASE("a message that is too long ends the call everywhere, with its length", "[unknown]") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int culprit = 0; culprit < ranks; ++culprit) {
      UnknownCase c = some_case(ranks, culprit);
      c.in_place = false;
      c.lengths[static_cast<std::size_t>(culprit)] = c.capacity + 1;
      SimConfig config;
      config.ranks = ranks;
      World world(config);
      UnknownProgram program(c);
      auto task = [&](Call& call, int rank) { return program.start(call, rank); };
      for (const Error& error : run_ranks(world, task)) {
        CHECK(error.code() == Code::invalid_argument);
        CHECK(error.rank() == culprit);
        CHECK(std::string(error.message()) == "message of 321 bytes, at most 320 were agreed");
      }
      CHECK(world.leaks() == "");
    }
  }
}

TEST_CASE("one slow rank, and wires that hold little", "[unknown]") {
  for (int ranks = 2; ranks <= 6; ++ranks) {
    for (int slow = 0; slow < ranks; ++slow) {
      UnknownCase c;
      for (int rank = 0; rank < ranks; ++rank) {
        c.lengths.push_back(static_cast<std::size_t>(20 + rank % 3) * chunk);
      }
      c.capacity = 22 * chunk;
      Conditions conditions;
      conditions.config.wire_bytes = 200;
      conditions.config.slot_bytes = slow % 2 == 0 ? 32 : 1024;
      conditions.backlog_bytes = 300;
      conditions.start_s = [slow](int rank) { return rank == slow ? 1e-3 : 0.0; };
      CHECK(run_unknown(c, conditions) == "");
    }
  }
}

// (P-1)(alpha + beta m), as the file says, where every message is one short chunk.
TEST_CASE("what messages of one length cost", "[unknown]") {
  constexpr LinkCost latency_bound{1e-6, 1e-9, 0};
  constexpr LinkCost wire_bound{1e-8, 1e-9, 0};
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (const std::size_t length : {std::size_t{40}, 5 * chunk - 3}) {
      for (const LinkCost& link : {latency_bound, wire_bound}) {
        UnknownCase c;
        c.lengths.assign(static_cast<std::size_t>(ranks), length);
        c.capacity = 5 * chunk;
        SimConfig config;
        config.ranks = ranks;
        config.link = {link.alpha, link.beta};
        World world(config);
        UnknownProgram program(c);
        auto task = [&](Call& call, int rank) { return program.start(call, rank); };
        for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
        const double expected = allgatherv_unknown_cost(ranks, length, chunk, link);
        INFO(ranks << " ranks, " << length << " bytes, alpha " << link.alpha);
        CHECK(std::fabs(world.elapsed_s() - expected) <= 1e-9 * expected);
      }
    }
  }
}

}  // namespace pith::test
