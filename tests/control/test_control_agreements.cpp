// The control plane in virtual time: agreements, with ranks that die, have stopped, are left out or
// never come.
#include <string>
#include <utility>
#include <vector>

#include "all_ranks.hpp"
#include "catch.hpp"
#include "control_world.hpp"

using namespace pith;
using namespace pith::test;

namespace {

constexpr CommKey comm = 7;
using Need = ControlPlane::Need;

// All members but one agree without it, as in a shrink that excludes it; `late` comes after 4 s.
class WithoutOne {
 public:
  WithoutOne(ControlWorld& world, int excluded, int late)
      : world_(world), members_(all_ranks(world)), watchers_(at(world.ranks())) {
    members_[at(excluded)] = -1;
    for (int rank = 0; rank < world.ranks(); ++rank) {
      world.plane(rank).add(comm, all_ranks(world), watchers_[at(rank)]);
      if (rank == excluded) continue;
      world.at_ms(rank == late ? 4'500 : 500, [this, rank] { take_part(rank); });
    }
  }
  int agreed() const { return agreed_; }

 private:
  void take_part(int rank) {
    world_.plane(rank).gather({comm, 1}, Need::live, members_, "x",
                              [this](const GatherResult& result) {
                                agreed_ += !result.error && result.blobs.size() == 7;
                              });
  }

  ControlWorld& world_;
  std::vector<int> members_;
  std::vector<RecordingWatcher> watchers_;
  int agreed_ = 0;
};

// Agreements of several communicators, each of all ranks, one behind the other at each rank.
class Many {
 public:
  Many(ControlWorld& world, int comms, std::uint32_t rounds)
      : world_(world), rounds_(rounds), left_(at(world.ranks()), comms) {
    for (int c = 0; c < comms; ++c) {
      for (int rank = 0; rank < world.ranks(); ++rank) {
        world.at_ms(world.pick(0, 50), [this, c, rank] { take_part(c, rank, 0); });
      }
    }
  }
  // In how many a rank that lives still waits.
  int waiting() const {
    int count = 0;
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      if (world_.fate(rank) == ControlWorld::Fate::lives) count += left_[at(rank)];
    }
    return count;
  }

 private:
  void take_part(int c, int rank, std::uint32_t round) {
    if (world_.fate(rank) != ControlWorld::Fate::lives) return;
    if (round == rounds_) {
      --left_[at(rank)];
      return;
    }
    world_.plane(rank).gather({100 + static_cast<CommKey>(c), round}, Need::live, all_ranks(world_),
                              std::string(500, 'x'), [this, c, rank, round](const GatherResult&) {
                                take_part(c, rank, round + 1);
                                world_.turn_soon(rank);
                              });
  }

  ControlWorld& world_;
  const std::uint32_t rounds_;
  std::vector<int> left_;
};

}  // namespace

TEST_CASE("whoever waits for one of many agreements gets it, whoever dies", "[control][long]") {
  constexpr int comms = 6;
  constexpr std::uint32_t rounds = 60;  // more results than are kept
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    ControlWorld world(15, 2, seed);
    const Many many(world, comms, rounds);
    for (int deaths = 0; deaths < 5; ++deaths) {
      world.at_ms(world.pick(50, 2'000), [&world] { world.kill(world.pick(0, 14)); });
    }
    world.run_until_ms(20'000);
    CHECK(many.waiting() == 0);
  }
}

// Whoever hears of a death first lets go of what was being made.
TEST_CASE("an agreement that fails names who has died, not who has therefore let go of it",
          "[control]") {
  for (const bool took_part : {false, true}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      INFO("seed " << seed << ", the dead rank took part: " << took_part);
      ControlWorld world(4, 2, seed);
      std::vector<Error> errors;
      const auto agree = [&](int rank) {
        world.plane(rank).gather(
            {comm, 1}, Need::all, all_ranks(world), "x",
            [&](const GatherResult& result) { errors.push_back(result.error); });
      };
      world.run_until_ms(200);
      agree(0);
      agree(1);
      if (took_part) agree(3);
      world.run_until_ms(400);
      world.kill(3);
      world.run_until_ms(600);
      world.plane(2).remove(comm, all_ranks(world));
      world.run_until_ms(800);
      REQUIRE(errors.size() == 2);
      for (const Error& error : errors) CHECK(error.rank() == 3);
    }
  }
}

TEST_CASE("a rank that has stopped and is left out keeps nobody from agreeing", "[control]") {
  for (const int stopped : {0, 1, 7}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      INFO("rank " << stopped << ", seed " << seed);
      ControlWorld world(8, 2, seed);
      const WithoutOne without(world, stopped, -1);
      world.run_until_ms(200);
      world.stop(stopped);
      world.run_until_ms(3'500);
      CHECK(without.agreed() == 7);
      // A leaf is in nobody's way.
      CHECK(ignorant(world, stopped == 7 ? std::vector<int>{} : std::vector<int>{stopped}) == 0);
    }
  }
}

TEST_CASE("a rank that is left out and answers is not given up", "[control]") {
  for (const int excluded : {0, 1}) {
    ControlWorld world(8, 2, 1);
    const WithoutOne without(world, excluded, 5);
    world.run_until_ms(4'400);
    CHECK(without.agreed() == 0);
    world.run_until_ms(5'000);
    CHECK(without.agreed() == 7);
    CHECK(ignorant(world, {}) == 0);
  }
}

TEST_CASE("a rank that is left out and answers outlives a short timeout", "[control]") {
  for (const double timeout_s : {0.3, 1.0, 1.5}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      INFO("timeout " << timeout_s << " s, seed " << seed);
      ControlWorld world(8, 2, seed, timeout_s);
      const WithoutOne without(world, 0, 5);
      world.run_until_ms(5'000);
      CHECK(ignorant(world, {}) == 0);
    }
  }
}

namespace {

// Ranks that agree, each as soon as it comes to it.
class Few {
 public:
  Few(ControlWorld& world, std::vector<int> ranks, std::uint32_t round, Need need)
      : ranks_(std::move(ranks)) {
    for (const int rank : ranks_) {
      world.plane(rank).gather({comm, round}, need, ranks_, "x",
                               [this](const GatherResult& result) {
                                 if (!result.error) agreed_ += result.blobs.size() == ranks_.size();
                               });
    }
  }
  bool all_agreed() const { return agreed_ == ranks_.size(); }

 private:
  const std::vector<int> ranks_;
  std::size_t agreed_ = 0;
};

}  // namespace

// Of 15 ranks 1 has children 3 and 4, 3 has 7 and 8.
TEST_CASE("a rank that has stopped is passed by where others agree among themselves", "[control]") {
  for (const Need need : {Need::all, Need::live}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      INFO("seed " << seed);
      ControlWorld world(15, 2, seed);
      world.run_until_ms(200);
      world.stop(1);
      world.run_until_ms(500);
      // 3 is none of them, and in between.
      const Few above(world, {4, 7, 8, 12}, 1, need);
      world.run_until_ms(3'500);
      CHECK(above.all_agreed());
      CHECK(world.plane(3).parent() == 0);
      CHECK(world.plane(4).parent() == 0);
      CHECK(ignorant(world, {}) == 0);
      // What others hear meanwhile.
      world.kill(7);
      world.run_until_ms(4'500);
      CHECK(ignorant(world, {7}) == 0);

      world.wake(1);
      world.run_until_ms(5'500);
      CHECK(world.plane(3).parent() == 1);
      CHECK(world.plane(4).parent() == 1);
      CHECK(ignorant(world, {7}) == 0);
      const Round all(world, {comm, 2}, Need::live);
      world.run_until_ms(6'500);
      CHECK(all.ended() == 14);
      CHECK(all.least() == 14);
    }
  }
}

TEST_CASE("a rank that others pass by dies, or the root above it", "[control]") {
  for (const int victim : {0, 1}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      INFO("victim " << victim << ", seed " << seed);
      ControlWorld world(15, 2, seed);
      world.run_until_ms(200);
      world.stop(1);
      world.run_until_ms(500);
      const Few first(world, {4, 7, 8, 12}, 1, Need::live);
      world.run_until_ms(3'500);
      CHECK(first.all_agreed());
      world.kill(victim);
      const Few second(world, {4, 7, 8, 12}, 2, Need::live);
      world.run_until_ms(6'000);
      // The next root is the one that has stopped: it must say what it has decided.
      CHECK(second.all_agreed() == (victim == 1));
      world.wake(1);
      world.run_until_ms(9'000);
      CHECK(second.all_agreed());
      CHECK(ignorant(world, {victim}) == 0);
    }
  }
}

TEST_CASE("whoever waits in vain is told by whom agreements are held up", "[control]") {
  constexpr double timeout_s = 3;
  ControlWorld world(4, 2, 1, timeout_s);
  world.run_until_ms(200);
  world.stop(0);
  world.run_until_ms(500);
  std::vector<std::string> told;
  for (const int rank : {1, 2}) {
    world.plane(rank).gather({comm, 1}, Need::live, {1, 2}, "x", [&](const GatherResult& result) {
      told.emplace_back(result.error.message());
    });
  }
  world.run_until_ms(500 + timeout_s * 1e3);
  CHECK(told.empty());
  world.run_until_ms(1'500 + timeout_s * 1e3);
  REQUIRE(told.size() == 2);
  for (const std::string& text : told) {
    INFO(text);
    CHECK(text.starts_with("rank 0 of the job, which all agreements pass, has stopped: "));
  }
}

TEST_CASE("an agreement waits for nobody whom somebody leaves out", "[control]") {
  const bool first_leaves_out = GENERATE(true, false);
  ControlWorld world(4, 2, 1);
  world.run_until_ms(200);
  world.stop(3);
  int ended = 0;
  for (const int rank : {1, 0, 2}) {
    const bool leaves_out = (rank == 1) == first_leaves_out;
    const std::vector<int> named = {0, 1, 2, leaves_out ? -1 : 3};
    world.at_ms(300 + 50 * ((rank + 3) % 4), [&world, &ended, rank, named] {
      world.plane(rank).gather({comm, 1}, Need::live, named, "x", [&](const GatherResult& result) {
        CHECK_FALSE(result.error);
        CHECK(result.blobs.size() == 3);
        ++ended;
      });
    });
  }
  world.run_until_ms(1'500);
  CHECK(ended == 3);
}
