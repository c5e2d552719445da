// Random schedules: jitter, late starts, small wires, up to six communicators of random ranks at
// once, several calls of each under way, and in one seed of four one of them is aborted on the way:
// its calls end, and the others do not notice.
//
// PITH_TEST_SEEDS=n runs n seeds; PITH_TEST_SEED=s runs that one, which is what a failure prints.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "model/model.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/algorithm_conformance.hpp"
#include "tests/collectives/random_calls.hpp"

namespace pith::test {

namespace {

// A communicator over the ranks of a world; rank r of it is rank members[r] of the world.
class Group {
 public:
  Group(World& world, std::uint32_t id, std::vector<int> members)
      : world_(world),
        members_(std::move(members)),
        model_(static_cast<int>(members_.size())),
        ranks_(members_.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const int own = members_[r];
      Rank& rank = ranks_[r];
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
      rank.context.chooser = &model_;
      // The opening of two-shot and one-shot, also where there is nothing to be seen.
      rank.context.views = id % 2 == 0 || world.sim().config().reach;
      rank.context.revoke = [](void*, const Error& error) {
        FAIL_CHECK("revoked: " << error.message());
      };
    }
  }

  const CallContext& context(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].context;
  }
  int size() const { return static_cast<int>(members_.size()); }
  // The rank here of a rank of the world; -1: none.
  int rank_of(int member) const {
    const auto found = std::ranges::find(members_, member);
    return found == members_.end() ? -1 : static_cast<int>(found - members_.begin());
  }
  void revoke(std::size_t rank, const Error& error) {
    CommState& comm = ranks_[rank].comm;
    comm.revoked = error;
    world_.mailbox(members_[rank]).quiesce(comm, error);
    world_.transport(members_[rank]).quiesce(comm, error);
  }
  // One rank at once, the others when they hear of it.
  void abort(std::size_t rank) {
    const Error error(Code::remote, "an abort", static_cast<int>(rank));
    aborted_ = true;
    revoke(rank, error);
    world_.sim().after(1e-5, [this, error] { revoke_all(error); });
  }
  bool aborted() const { return aborted_; }
  // Ends whatever is left.
  void close(const Error& error) {
    revoke_all(error);
    world_.sim().run();
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      world_.mailbox(members_[r]).forget(ranks_[r].comm.id);
    }
  }

 private:
  void revoke_all(const Error& error) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) revoke(r, error);
  }
  struct Rank {
    CommState comm;
    std::vector<Route> routes;
    CallContext context;
  };
  World& world_;
  std::vector<int> members_;
  Model model_;
  std::vector<Rank> ranks_;
  bool aborted_ = false;
};

using Programs = std::vector<std::unique_ptr<Scheduled>>;

constexpr std::size_t most_at_once = 3;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t usual_seeds = 500;
#else
constexpr std::uint64_t usual_seeds = 2000;
#endif

// A communicator and its calls: those of a batch are under way at once, one batch follows the
// other.
struct Part {
  Part(World& world, std::uint32_t id, std::vector<int> members)
      : group(world, id, std::move(members)) {}

  // What has gone wrong. Of an aborted communicator only calls that all ranks have ended well.
  std::string check() const {
    for (const Programs& batch : batches) {
      for (const auto& program : batch) {
        if (program->succeeded < group.size() && group.aborted()) continue;
        if (program->succeeded < group.size()) return "a call has not ended well on all ranks";
        std::string wrong = program->check();
        if (!wrong.empty()) return wrong;
      }
    }
    return {};
  }

  Group group;
  MessageCounts counts;  // outlive the programs
  std::vector<Programs> batches;
  std::string failure;  // the first rank's that has one
};

// One rank's calls of one communicator. Never an error: others of the rank go on.
Task<Error> make_calls(Call& frames, Part& part, int rank) {
  std::uint32_t number = 0;
  for (Programs& batch : part.batches) {
    std::array<Task<Error>, most_at_once> strands;
    std::size_t used = 0;
    for (auto& program : batch) {
      number += program->dense ? 1 : 0;  // messages do not count among the calls
      strands[used++] = make_call(frames, part.group.context(rank), *program, number);
    }
    const Error error = co_await when_all(std::span(strands).first(used));
    if (!error) continue;
    const bool expected = part.group.aborted() && error.code() == Code::remote;
    if (!expected && part.failure.empty()) part.failure = error.message();
    break;
  }
  co_return Error();
}

using Parts = std::vector<std::unique_ptr<Part>>;

Task<Error> make_all_calls(Call& frames, Parts& parts, int member) {
  std::vector<Task<Error>> strands;
  for (const auto& part : parts) {
    const int rank = part->group.rank_of(member);
    if (rank >= 0) strands.push_back(make_calls(frames, *part, rank));
  }
  co_return co_await when_all(strands);
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
  if (!config.late_kernels && dice.below(2) == 0) {
    config.reach = [seed](int owner, int peer) {
      const auto pair = 10 * static_cast<std::uint64_t>(owner) + static_cast<std::uint64_t>(peer);
      return static_cast<MemoryHandle::Reach>(random_bits(seed, 78, pair) % 3);
    };
  }
  return config;
}

// Two or more ranks, in any order.
std::vector<int> random_members(Dice& dice, int ranks) {
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<std::ptrdiff_t>(dice.below(members.size() + 1));
    members.insert(members.begin() + at, rank);
  }
  if (dice.below(3) != 0) members.resize(2 + dice.below(members.size() - 1));
  return members;
}

// Lines that describe the calls are added to `calls`.
std::unique_ptr<Part> random_part(Dice& dice, World& world, std::uint32_t id, std::string& calls) {
  auto part = std::make_unique<Part>(world, id, random_members(dice, world.size()));
  const int ranks = part->group.size();
  for (std::size_t b = 1 + dice.below(3); b > 0; --b) {
    Programs& batch = part->batches.emplace_back();
    for (std::size_t k = 1 + dice.below(most_at_once); k > 0; --k) {
      batch.push_back(random_call(dice, ranks, part->counts));
      calls += fmt::format("\n  communicator {}, batch {}: {}", id, part->batches.size(),
                           batch.back()->name);
    }
  }
  return part;
}

// Runs all calls; in one seed of four a communicator is aborted after some of the steps.
std::string run_parts(Dice& dice, World& world, Parts& parts) {
  world.new_calls();
  std::vector<Task<Error>> tasks;
  for (int rank = 0; rank < world.size(); ++rank) {
    tasks.push_back(make_all_calls(world.call(rank), parts, rank));
  }
  world.start(std::move(tasks));
  if (dice.below(4) == 0) {
    Group& group = parts[dice.below(parts.size())]->group;
    const auto rank = dice.below(static_cast<std::size_t>(group.size()));
    std::size_t steps = dice.below(dice.below(2) == 0 ? 100 : 1000);
    while (steps > 0 && world.sim().step()) --steps;
    group.abort(rank);
  }
  for (const Error& error : world.finish()) {
    if (error) return std::string(error.message());
  }
  return {};
}

std::string run_seed(std::uint64_t seed) {
  Dice dice(seed);
  World world(random_config(dice, seed));
  std::vector<double> starts;
  for (int rank = 0; rank < world.size(); ++rank) {
    starts.push_back(dice.below(3) == 0 ? 1e-4 * dice.uniform() : 0);
    world.mailbox(rank).backlog_limit = dice.below(2) == 0 ? 1 + dice.below(2000) : 1 << 20;
  }
  world.start_s = [&starts](int rank) { return starts[static_cast<std::size_t>(rank)]; };
  Parts parts;
  std::string calls;
  const std::size_t communicators = 1 + dice.below(6);
  for (std::uint32_t id = 11; parts.size() < communicators; ++id) {
    parts.push_back(random_part(dice, world, id, calls));
  }
  std::string failure = run_parts(dice, world, parts);
  for (const auto& part : parts) part->group.close(Error(Code::internal, "the end"));
  for (const auto& part : parts) {
    if (failure.empty()) failure = part->failure;
    if (failure.empty()) failure = part->check();
  }
  if (failure.empty()) failure = world.leaks();
  if (failure.empty()) return failure;
  return fmt::format("PITH_TEST_SEED={} build/bin/test_collectives 'random schedules'\n  {}{}",
                     seed, failure, calls);
}

}  // namespace

TEST_CASE("random schedules", "[collectives][schedules]") {
  if (const char* one = std::getenv("PITH_TEST_SEED")) {
    CHECK(run_seed(std::strtoull(one, nullptr, 10)) == "");
    return;
  }
  const char* many = std::getenv("PITH_TEST_SEEDS");
  const std::uint64_t usual = std::getenv("PITH_TEST_FULL") ? 10'000 : usual_seeds;
  const std::uint64_t seeds = many ? std::strtoull(many, nullptr, 10) : usual;
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
    Part part(world, 11, {0, 1, 2, 3});
    DenseCase c;
    c.algorithm = &algorithm;
    c.ranks = 4;
    c.count = 128;
    c.tuning.chunk_bytes = 512;
    for (c.seed = 1; c.seed <= 40; ++c.seed) {
      part.batches.emplace_back().push_back(std::make_unique<Scheduled>(c));
    }
    auto task = [&](Call& call, int rank) { return make_calls(call, part, rank); };
    for (const Error& error : run_ranks(world, task)) CHECK(!error);
    CHECK(world.ended_s(0) > 1e-2);
    CHECK(part.failure == "");
    CHECK(part.check() == "");
    part.group.close(Error(Code::internal, "the end"));
    CHECK(world.leaks() == "");
  }
}

TEST_CASE("ranks that make different calls all get an error",
          "[collectives][schedules][conformance]") {
  for (const Algorithm& algorithm : tested_algorithms()) {
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
