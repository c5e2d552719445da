// Random schedules: jitter, late starts, small wires, two communicators at once, calls in a row.
//
// PITH_TEST_SEEDS=n runs n seeds; PITH_TEST_SEED=s runs that one, which is what a failure prints.
#include <cstdlib>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

namespace {

// Random numbers of one seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::size_t below(std::size_t n) { return random_bits(seed_, 77, ++count_) % n; }
  double uniform() { return static_cast<double>(below(1 << 20)) / (1 << 20); }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

// A communicator over the ranks of a world; rank r of it is rank members[r] of the world.
class Group {
 public:
  Group(World& world, std::uint32_t id, std::vector<int> members)
      : world_(world), members_(std::move(members)), ranks_(members_.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const int own = members_[r];
      Rank& rank = ranks_[r];
      rank.group = this;
      rank.comm.id = id;
      for (const int peer : members_) rank.routes.push_back({&world.transport(own), peer});
      rank.context.scheduler = &world.sim().scheduler();
      rank.context.arena = &world.arena(own);
      rank.context.mailbox = &world.mailbox(own);
      rank.context.compute = rank.context.host = &world.compute(own);
      rank.context.comm = &rank.comm;
      rank.context.routes = rank.routes;
      rank.context.rank = static_cast<int>(r);
      rank.context.size = static_cast<int>(ranks_.size());
      // The opening of two-shot and one-shot, also where there is nothing to be seen.
      rank.context.views = id % 2 == 0;
      rank.context.revoke = [](void*, const Error& error) {
        FAIL_CHECK("revoked: " << error.message());
      };
    }
  }

  const CallContext& context(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].context;
  }
  int rank_of(int member) const {
    return static_cast<int>(std::ranges::find(members_, member) - members_.begin());
  }
  // Ends whatever is left.
  void close(const Error& error) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      CommState& comm = ranks_[r].comm;
      comm.revoked = error;
      world_.mailbox(members_[r]).quiesce(comm, error);
      world_.transport(members_[r]).quiesce(comm, error);
    }
    world_.sim().run();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      world_.mailbox(members_[r]).forget(ranks_[r].comm.id);
    }
  }

 private:
  struct Rank {
    Group* group = nullptr;
    CommState comm;
    std::vector<Route> routes;
    CallContext context;
  };
  World& world_;
  std::vector<int> members_;
  std::vector<Rank> ranks_;
};

using Programs = std::vector<std::unique_ptr<DenseProgram>>;

// One rank's calls on one communicator, one after the other; the frames come from `frames`.
Task<Error> call_all(Call&, const Group& group, Programs& programs, int rank) {
  std::uint32_t number = 0;
  for (auto& program : programs) {
    ++number;
    Call call(group.context(rank), number, number);
    Task<Error> task = program->start(call, rank);
    Error error = co_await std::move(task);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> call_both(Call& frames, const std::array<Group, 2>& groups,
                      std::array<Programs, 2>& programs, int member) {
  std::array<Task<Error>, 2> strands;
  for (std::size_t g = 0; g < strands.size(); ++g) {
    strands[g] = call_all(frames, groups[g], programs[g], groups[g].rank_of(member));
  }
  co_return co_await when_all(strands);
}

DenseCase random_case(Dice& dice, int ranks, std::uint64_t seed) {
  DenseCase c;
  c.algorithm = &algorithms()[dice.below(algorithms().size())];
  c.ranks = ranks;
  c.tuning = {std::size_t{32} << dice.below(4), static_cast<int>(1 + dice.below(4))};
  c.count = dice.below(120);
  c.root = static_cast<int>(dice.below(static_cast<std::size_t>(ranks)));
  c.in_place = dice.below(2) == 0;
  c.seed = seed;
  return c;
}

SimConfig random_config(Dice& dice, std::uint64_t seed) {
  SimConfig config;
  config.ranks = static_cast<int>(2 + dice.below(8));
  config.seed = seed;
  config.jitter_s = dice.below(2) == 0 ? 0 : 1e-5 * dice.uniform();
  config.wire_bytes = dice.below(2) == 0 ? 1 + dice.below(500) : std::size_t{1} << 20;
  config.slot_bytes = dice.below(2) == 0 ? 16 + dice.below(200) : std::size_t{64} << 10;
  config.kernel_s = 1e-6 * dice.uniform();
  config.gamma_s_per_byte = 1e-9 * dice.uniform();
  config.late_kernels = dice.below(2) == 0;
  return config;
}

std::string run_seed(std::uint64_t seed) {
  Dice dice(seed);
  World world(random_config(dice, seed));
  std::vector<double> starts;
  std::vector<int> forwards;
  for (int rank = 0; rank < world.size(); ++rank) {
    starts.push_back(dice.below(3) == 0 ? 1e-4 * dice.uniform() : 0);
    forwards.push_back(rank);
    world.mailbox(rank).backlog_limit = dice.below(2) == 0 ? 1 + dice.below(2000) : 1 << 20;
  }
  world.start_s = [&starts](int rank) { return starts[static_cast<std::size_t>(rank)]; };
  std::array<Group, 2> groups{Group(world, 11, forwards),
                              Group(world, 12, {forwards.rbegin(), forwards.rend()})};
  std::array<Programs, 2> programs;
  std::string calls;
  for (Programs& row : programs) {
    for (std::size_t k = 1 + dice.below(5); k > 0; --k) {
      const DenseCase c = random_case(dice, world.size(), seed);
      row.push_back(std::make_unique<DenseProgram>(c));
      calls += "\n  " + describe(c);
    }
  }

  auto task = [&](Call& call, int rank) { return call_both(call, groups, programs, rank); };
  std::string failure;
  for (const Error& error : run_ranks(world, task)) {
    if (error && failure.empty()) failure = error.message();
  }
  for (Group& group : groups) group.close(Error(Code::internal, "the end"));
  for (const Programs& row : programs) {
    for (const auto& program : row) failure = failure.empty() ? program->check() : failure;
  }
  if (failure.empty()) failure = world.leaks();
  if (failure.empty()) return failure;
  return fmt::format("PITH_TEST_SEED={} test_collectives [schedules]\n  {}{}", seed, failure,
                     calls);
}

}  // namespace

TEST_CASE("random schedules", "[collectives][schedules]") {
  if (const char* one = std::getenv("PITH_TEST_SEED")) {
    CHECK(run_seed(std::strtoull(one, nullptr, 10)) == "");
    return;
  }
  const char* many = std::getenv("PITH_TEST_SEEDS");
  const std::uint64_t seeds = many ? std::strtoull(many, nullptr, 10) : 500;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const std::string failure = run_seed(seed);
    if (!failure.empty()) FAIL_CHECK(failure);
  }
  CHECK(seeds > 0);
}

TEST_CASE("a root far ahead is held back by what the wires hold", "[collectives][schedules]") {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective != Collective::broadcast) continue;
    SimConfig config;
    config.ranks = 4;
    config.wire_bytes = 4096;
    World world(config);
    for (int rank = 0; rank < 4; ++rank) world.mailbox(rank).backlog_limit = 4096;
    world.start_s = [](int rank) { return rank == 0 ? 0.0 : 1e-2; };
    Group group(world, 11, {0, 1, 2, 3});
    Programs programs;
    DenseCase c;
    c.algorithm = &algorithm;
    c.ranks = 4;
    c.count = 128;
    c.tuning.chunk_bytes = 512;
    for (c.seed = 1; c.seed <= 40; ++c.seed) programs.push_back(std::make_unique<DenseProgram>(c));
    auto task = [&](Call& call, int rank) { return call_all(call, group, programs, rank); };
    for (const Error& error : run_ranks(world, task)) CHECK(!error);
    CHECK(world.ended_s(0) > 1e-2);
    for (const auto& program : programs) CHECK(program->check() == "");
    group.close(Error(Code::internal, "the end"));
    CHECK(world.leaks() == "");
  }
}

TEST_CASE("ranks that make different calls all get an error", "[collectives][schedules]") {
  for (const Algorithm& algorithm : algorithms()) {
    // Who only gives may have done its part before anybody can know, and so may a pair of ranks
    // that agree where not everybody hears of everybody.
    const bool all_to_all = algorithm.collective == Collective::allreduce ||
                            algorithm.collective == Collective::allgather ||
                            algorithm.collective == Collective::reduce_scatter ||
                            algorithm.collective == Collective::alltoall ||
                            algorithm.collective == Collective::barrier;
    for (int ranks = 2; ranks <= 9; ++ranks) {
      for (int odd = 0; odd < ranks; ++odd) {
        DenseCase c;
        c.algorithm = &algorithm;
        c.ranks = ranks;
        c.count = 100;
        SimConfig config;
        config.ranks = ranks;
        World world(config);
        world.digest = [odd](int rank) { return rank == odd ? 1 : 2; };
        DenseProgram program(c);
        auto task = [&](Call& call, int rank) { return program.start(call, rank); };
        int misused = 0;
        int good = 0;
        for (const Error& error : run_ranks(world, task)) {
          REQUIRE(error.code() != Code::internal);
          misused += error.code() == Code::invalid_usage;
          good += !error;
        }
        INFO(describe(c) << ", rank " << odd << " is the odd one");
        CHECK(misused > 0);
        CHECK(good < ranks);
        if (all_to_all) CHECK(good == 0);
        CHECK(world.leaks() == "");
      }
    }
  }
}

}  // namespace pith::test
