// The control plane in virtual time: how long things take, with a rank that stops and with a
// thousand ranks.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "catch.hpp"
#include "control/members.hpp"
#include "control_world.hpp"

using namespace pith;
using namespace pith::test;

namespace {

constexpr CommKey comm = 7;
using Need = ControlPlane::Need;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

std::vector<int> all_ranks(const ControlWorld& world) {
  std::vector<int> all(at(world.ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Every rank but one is in a call that waits for that one, from the beginning.
class Waiting {
 public:
  Waiting(ControlWorld& world, int stopped) : world_(world), watchers_(at(world.ranks())) {
    for (int rank = 0; rank < world.ranks(); ++rank) {
      RecordingWatcher& watcher = watchers_[at(rank)];
      world.plane(rank).add(comm, all_ranks(world), watcher);
      if (rank == stopped) continue;
      watcher.calls[1] = {1, 99, "pithAllReduce of 10 float32, sum"};
      watcher.stall = Stall{watcher.calls[1], 0, stopped};
    }
    go_on();
  }
  RecordingWatcher& of(int rank) { return watchers_[at(rank)]; }

 private:
  void go_on() {
    const double now_ms = static_cast<double>(world_.now_ns()) / 1e6;
    for (RecordingWatcher& watcher : watchers_) {
      if (watcher.stall) watcher.stall->seconds = now_ms / 1e3;
    }
    world_.at_ms(now_ms + 50, [this] { go_on(); });
  }

  ControlWorld& world_;
  std::vector<RecordingWatcher> watchers_;
};

// How many ranks that live do not know exactly these dead.
int ignorant(ControlWorld& world, const std::vector<int>& dead) {
  int count = 0;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (world.fate(rank) != ControlWorld::Fate::lives) continue;
    count += world.plane(rank).dead() != dead;
  }
  return count;
}

// All that live take part; counts those that got a result with as many blobs.
class Round {
 public:
  Round(ControlWorld& world, std::uint32_t round, Need need) {
    for (int rank = 0; rank < world.ranks(); ++rank) {
      if (world.fate(rank) != ControlWorld::Fate::lives) continue;
      world.plane(rank).gather({comm, round}, need, all_ranks(world), "x",
                               [this](const GatherResult& result) {
                                 ++ended_;
                                 least_ = std::min(least_, result.blobs.size());
                               });
    }
  }
  int ended() const { return ended_; }
  std::size_t least() const { return least_; }

 private:
  int ended_ = 0;
  std::size_t least_ = ~std::size_t{0};
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

// Communicators that come and go, one every few milliseconds: each is made by an agreement of some
// ranks, now and then revoked, and let go by its members, each in its own time.
class ComingAndGoing {
 public:
  ComingAndGoing(ControlWorld& world, int count) : world_(world), count_(count) { next(); }
  static constexpr double apart_ms = 4;
  std::size_t most_remembered() const { return most_; }
  int agreed() const { return agreed_; }

 private:
  struct One {
    CommKey key;
    std::vector<int> members;
    std::map<int, RecordingWatcher> watchers;
  };
  bool lives(int rank) const { return world_.fate(rank) == ControlWorld::Fate::lives; }
  double now_ms() const { return static_cast<double>(world_.now_ns()) / 1e6; }
  double soon(int most_ms) { return now_ms() + world_.pick(0, most_ms * 1000) / 1e3; }

  void next() {
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      if (!lives(rank)) continue;
      most_ = std::max(most_, world_.plane(rank).remembered().size());
    }
    if (made_ == count_) return;
    make(CommKey{1000} + static_cast<CommKey>(made_++));
    world_.at_ms(now_ms() + apart_ms, [this] { next(); });
  }

  void make(CommKey key) {
    auto one = std::make_shared<One>();
    one->key = key;
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      if (lives(rank) && world_.pick(0, 3) > 0) one->members.push_back(rank);
    }
    if (one->members.empty()) return;
    const bool revoked = world_.pick(0, 2) == 0;
    const int by = one->members[at(world_.pick(0, static_cast<int>(one->members.size()) - 1))];
    for (const int rank : one->members) {
      world_.plane(rank).gather({key, 0}, Need::all, one->members, "x",
                                [this, one, rank, revoked, by](const GatherResult& result) {
                                  made(one, rank, revoked && rank == by, result);
                                });
    }
  }

  // As Communicator does: it is let go of also where it could not be made.
  void made(const std::shared_ptr<One>& one, int rank, bool revokes, const GatherResult& result) {
    if (!result.error) {
      ++agreed_;
      world_.plane(rank).add(one->key, one->members, one->watchers[rank]);
      if (revokes) {
        world_.at_ms(soon(10), [this, one, rank] {
          if (lives(rank)) {
            world_.plane(rank).revoke(one->key, Error(Code::remote, "gave up", 0));
          }
        });
      }
    }
    world_.at_ms(soon(30) + (revokes ? 11 : 0), [this, one, rank] {
      if (lives(rank)) world_.plane(rank).remove(one->key, one->members);
    });
  }

  ControlWorld& world_;
  const int count_;
  int made_ = 0;
  int agreed_ = 0;
  std::size_t most_ = 0;
};

}  // namespace

TEST_CASE("a send or recv that stalls is warned of, once each time", "[control]") {
  ControlWorld world(2, 2, 1);
  RecordingWatcher watchers[2];
  for (int rank = 0; rank < 2; ++rank)
    world.plane(rank).add(comm, all_ranks(world), watchers[rank]);
  const auto waits_for_s = [&](double from_ms, double seconds) {
    world.at_ms(from_ms, [&, seconds] {
      watchers[1].stall = Stall{{0, 0, "send or recv"}, seconds, 0};
    });
  };
  waits_for_s(100, 9);
  waits_for_s(1'000, 11);
  waits_for_s(2'000, 12);
  world.at_ms(3'000, [&] { watchers[1].stall.reset(); });
  waits_for_s(4'000, 13);
  world.run_until_ms(900);
  CHECK(watchers[1].warnings == 0);
  world.run_until_ms(2'900);
  CHECK(watchers[1].warnings == 1);
  world.run_until_ms(5'000);
  CHECK(watchers[1].warnings == 2);
  CHECK(watchers[0].warnings == 0);
}

TEST_CASE("a rank stops: the others say so and then give up, in time", "[control][scale]") {
  constexpr double timeout_s = 20;
  // The root, a rank between it and others, and a leaf of the tree.
  for (const int stopped : {0, 1, 7}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      ControlWorld world(8, 2, seed, timeout_s);
      Waiting waiting(world, stopped);
      world.run_until_ms(200);
      world.stop(stopped);
      world.run_until_ms(9'500);
      for (int rank = 0; rank < 8; ++rank) CHECK(waiting.of(rank).warnings == 0);
      world.run_until_ms(10'500);
      for (int rank = 0; rank < 8; ++rank) {
        if (rank != stopped) CHECK(waiting.of(rank).warnings == 1);
      }
      world.run_until_ms(timeout_s * 1e3 - 500);
      for (int rank = 0; rank < 8; ++rank) CHECK(waiting.of(rank).revoked.empty());
      world.run_until_ms(timeout_s * 1e3 + 5'000);
      for (int rank = 0; rank < 8; ++rank) {
        if (rank == stopped) continue;
        INFO("rank " << stopped << " stopped, seed " << seed << ", rank " << rank);
        REQUIRE(waiting.of(rank).revoked.size() == 1);
        const Error& error = waiting.of(rank).revoked[0];
        INFO(error.message());
        CHECK(error.code() == Code::remote);
        CHECK(error.rank() == stopped);
        CHECK(world.plane(rank).dead().empty());
      }
    }
  }
}

namespace {

// To one rank, from each of the others.
std::vector<ControlWorld::Traffic> sent_to(const ControlWorld& world, int rank) {
  std::vector<ControlWorld::Traffic> sent;
  for (int from = 0; from < world.ranks(); ++from) sent.push_back(world.sent(from, rank));
  return sent;
}

}  // namespace

// It may sleep for ever: what is sent to it fills our memory.
TEST_CASE("little is said to a rank that has stopped, however many wait for it", "[control]") {
  // The root, a rank between it and others, and a leaf of the tree.
  for (const int stopped : {0, 1, 40}) {
    INFO("rank " << stopped);
    ControlWorld world(64, 8, 1);
    Waiting waiting(world, stopped);
    world.run_until_ms(200);
    world.stop(stopped);
    world.run_until_ms(8'000);
    const std::vector<ControlWorld::Traffic> sent = sent_to(world, stopped);
    for (const ControlWorld::Traffic& one : sent) CHECK(one.bytes < 10'000);
    world.run_until_ms(68'000);
    CHECK(sent_to(world, stopped) == sent);
    CHECK(ignorant(world, {}) == 0);
  }
}

TEST_CASE("all that stand still are asked by one question", "[control]") {
  ControlWorld world(64, 8, 1);
  Waiting waiting(world, 40);
  world.run_until_ms(8'000);
  const std::size_t before = world.sent(0, 2).bytes;
  world.run_until_ms(68'000);
  // A question is sent 80 times or so; the rest are answers to what rank 2 and those below it say.
  CHECK(world.sent(0, 2).bytes - before < 3'000);
}

TEST_CASE("a rank that has stopped for long and wakes up is asked again", "[control]") {
  for (const int stopped : {0, 1, 40}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      INFO("rank " << stopped << ", seed " << seed);
      ControlWorld world(64, 8, seed);
      Waiting waiting(world, stopped);
      world.run_until_ms(200);
      world.stop(stopped);
      world.run_until_ms(30'000);
      world.wake(stopped);
      world.run_until_ms(30'200);
      for (int rank = 0; rank < 64; ++rank) REQUIRE(waiting.of(rank).revoked.empty());
      waiting.of(stopped).calls[1] = {1, 98, "pithBroadcast of 10 float32"};  // and returns
      world.run_until_ms(31'200);
      for (int rank = 0; rank < 64; ++rank) {
        REQUIRE(waiting.of(rank).revoked.size() == 1);
        CHECK(waiting.of(rank).revoked[0].code() == Code::invalid_usage);
      }
    }
  }
}

namespace {

// A shrink as the ranks of a communicator come to it; nobody else sees that it lasts.
void shrink_at_ms(ControlWorld& world, double begin_ms, int rank, std::string text) {
  world.at_ms(begin_ms, [&world, rank, text = std::move(text)] {
    world.plane(rank).gather({comm, 1}, Need::live, all_ranks(world), "x",
                             [](const GatherResult&) {}, {0, 99, text, 1});
  });
}

}  // namespace

TEST_CASE("an agreement that somebody does not come to is warned of once", "[control]") {
  for (const bool revoked : {false, true}) {
    ControlWorld world(8, 2, 1);
    std::vector<RecordingWatcher> watchers(8);
    for (int rank = 0; rank < 8; ++rank) {
      world.plane(rank).add(comm, all_ranks(world), watchers[at(rank)]);
      // Rank 3 never comes, rank 5 late; rank 4 is in one that has no name.
      if (rank != 3) shrink_at_ms(world, rank == 5 ? 10'300 : 500, rank, rank == 4 ? "" : "shrink");
    }
    if (revoked) {
      world.at_ms(200, [&] { world.plane(2).revoke(comm, Error(Code::remote, "gave up", 2)); });
    }
    world.run_until_ms(10'300);
    for (const RecordingWatcher& watcher : watchers) CHECK(watcher.warnings == 0);
    world.run_until_ms(30'000);
    for (int rank = 0; rank < 8; ++rank) {
      INFO("rank " << rank);
      const RecordingWatcher& watcher = watchers[at(rank)];
      REQUIRE(watcher.warnings == (rank == 3 || rank == 4 ? 0 : 1));
      if (watcher.warnings == 0) continue;
      CHECK(watcher.warned->call.text == "shrink");
      CHECK(watcher.warned->absent == "rank 3");
    }
  }
}

TEST_CASE("who agrees and waits for a root that has stopped is told of it", "[control]") {
  ControlWorld world(3, 2, 1);
  std::vector<RecordingWatcher> watchers(3);
  for (int rank = 0; rank < 3; ++rank) {
    world.plane(rank).add(comm, all_ranks(world), watchers[at(rank)]);
    if (rank != 0) shrink_at_ms(world, 500, rank, "shrink");
  }
  world.run_until_ms(200);
  world.stop(0);
  world.run_until_ms(11'000);
  for (const int rank : {1, 2}) {
    REQUIRE(watchers[at(rank)].warnings == 1);
    CHECK(watchers[at(rank)].warned->waits_for == 0);
  }
}

namespace {

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

}  // namespace

TEST_CASE("whoever waits for one of many agreements gets it, whoever dies", "[control]") {
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
      const Round all(world, 2, Need::live);
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

TEST_CASE("a thousand ranks: start, deaths and agreement take a bounded time", "[control][scale]") {
  constexpr int ranks = 1000;
  ControlWorld world(ranks, 32, 1);
  const Round first(world, 0, Need::all);
  world.run_until_ms(600);
  CHECK(first.ended() == ranks);
  CHECK(first.least() == ranks);

  world.kill(1);  // between the root and 32 others
  world.run_until_ms(1'600);
  CHECK(ignorant(world, {1}) == 0);

  // In the middle of an agreement.
  const Round second(world, 1, Need::live);
  world.run_until_ms(1'605);
  world.kill(0);
  world.run_until_ms(2'605);
  CHECK(ignorant(world, {0, 1}) == 0);
  CHECK(world.plane(2).parent() == -1);
  world.run_until_ms(4'000);
  CHECK(second.ended() >= ranks - 2);
  CHECK(second.least() >= ranks - 2);
}

namespace {

// Two thousand ranks of which each has one thread and one link: 5 us a message at either end.
class TwoThousand {
 public:
  static constexpr int ranks = 2000;
  explicit TwoThousand(int fanout)
      : world(ranks, fanout, 1, 0, {}, {30'000, 5'000, 150'000, 1.0}),
        watchers(ranks),
        done(ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      world.plane(rank).add(comm, all_ranks(world), watchers[at(rank)]);
    }
  }
  // How many ms it takes from now on until it holds at all that live; then it becomes quiet.
  double time_until(const std::function<bool(int)>& holds) {
    const double began_ms = now_ms;
    for (int rank = 0; rank < ranks; ++rank) {
      while (world.fate(rank) == ControlWorld::Fate::lives && !holds(rank)) {
        world.run_until_ms(now_ms += 0.5);
      }
    }
    const double took_ms = now_ms - began_ms;
    world.run_until_ms(now_ms += 20'000);
    return took_ms;
  }
  double until_dead(int victim) {
    world.kill(victim);
    return time_until([&](int rank) { return contains(world.plane(rank).dead(), victim); });
  }
  void begin(std::uint32_t round, std::size_t bytes) {
    std::ranges::fill(done, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      if (world.fate(rank) != ControlWorld::Fate::lives) continue;
      world.plane(rank).gather({comm, round}, Need::live, all_ranks(world), std::string(bytes, 'x'),
                               [this, rank](const GatherResult&) { done[at(rank)] = 1; });
    }
  }
  double until_agreed() {
    return time_until([this](int rank) { return done[at(rank)] != 0; });
  }

  ControlWorld world;
  std::vector<RecordingWatcher> watchers;
  std::vector<char> done;
  double now_ms = 0;
};

}  // namespace

// The figures of src/control/README.md, in minutes: test_control "[.scale2000]".
TEST_CASE("two thousand ranks as a tree and as a star", "[.scale2000]") {
  for (const int fanout : {32, TwoThousand::ranks}) {
    for (const std::size_t bytes : {32u, 400u}) {
      TwoThousand job(fanout);
      ControlWorld& world = job.world;
      world.run_until_ms(job.now_ms = 10'000);
      const std::size_t before = world.sent_by(0).bytes;
      job.begin(0, bytes);
      const double agreed = job.until_agreed();
      const double sent_mb = double(world.sent_by(0).bytes - before) / 1e6;
      const double dead = job.until_dead(1500);
      const std::size_t connections = world.connections(0);
      world.plane(1999).revoke(comm, Error(Code::remote, "gave up", 1999));
      const double revoked = job.time_until(
          [&](int rank) { return static_cast<bool>(world.plane(rank).revocation_of(comm)); });
      job.begin(1, bytes);
      world.run_until_ms(job.now_ms += 1);
      world.kill(0);
      const double agreed_anew = job.until_agreed();
      const double root_dead = job.until_dead(1);
      WARN("fanout " << fanout << ", " << bytes << " bytes a rank: agreement " << agreed
                     << " ms, for which the root sent " << sent_mb << " MB over " << connections
                     << " connections; revocation " << revoked << ", a death " << dead
                     << ", the root's death " << root_dead << ", agreement in which it dies "
                     << agreed_anew << " ms");
    }
  }
}

TEST_CASE("ten thousand communicators come and go, and none is remembered", "[control][scale]") {
  constexpr int count = 10'000;
  ControlWorld world(7, 2, 1);
  ComingAndGoing comms(world, count);
  const double end_ms = count * ComingAndGoing::apart_ms;
  world.run_until_ms(end_ms / 3);
  world.kill(5);
  world.run_until_ms(end_ms / 2);
  world.kill(0);  // the root
  world.run_until_ms(end_ms + 3'000);
  CHECK(comms.agreed() > count * 3);
  // Those of the tenths of a second that a death and its agreements take are there at a time.
  CHECK(comms.most_remembered() < 500);
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (world.fate(rank) != ControlWorld::Fate::lives) continue;
    const std::vector<CommKey> left = world.plane(rank).remembered();
    INFO("rank " << rank << " remembers " << left.size() << ", the first "
                 << (left.empty() ? 0 : left.front()));
    CHECK(left.empty());
  }
}
