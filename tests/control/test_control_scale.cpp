// The control plane in virtual time: how long things take with a thousand ranks, and what is left
// of ten thousand communicators.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "all_ranks.hpp"
#include "catch.hpp"
#include "control/members.hpp"
#include "control_world.hpp"

using namespace pith;
using namespace pith::test;

namespace {

constexpr CommKey comm = 7;
using Need = ControlPlane::Need;

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

TEST_CASE("a thousand ranks: start, deaths and agreement take a bounded time", "[control][scale]") {
  constexpr int ranks = 1000;
  ControlWorld world(ranks, 32, 1);
  const Round first(world, {comm, 0}, Need::all);
  world.run_until_ms(600);
  CHECK(first.ended() == ranks);
  CHECK(first.least() == ranks);

  world.kill(1);  // between the root and 32 others
  world.run_until_ms(1'600);
  CHECK(ignorant(world, {1}) == 0);

  // In the middle of an agreement.
  const Round second(world, {comm, 1}, Need::live);
  world.run_until_ms(1'605);
  world.kill(0);
  world.run_until_ms(2'605);
  CHECK(ignorant(world, {0, 1}) == 0);
  CHECK(world.plane(2).parent() == -1);
  world.run_until_ms(4'000);
  CHECK(second.ended() >= ranks - 2);
  CHECK(second.least() >= ranks - 2);
}

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
