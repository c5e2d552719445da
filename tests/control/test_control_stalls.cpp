// The control plane in virtual time: when who waits for a rank that has stopped is warned, asks and
// gives up.
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
    world.plane(rank).gather({comm, 1}, ControlPlane::Need::live, all_ranks(world), "x",
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
