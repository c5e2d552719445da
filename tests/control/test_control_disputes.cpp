// Ranks that are in different calls, in virtual time: whoever is left hears who called what, also
// when the root dies in between. A seed that fails prints how to run it again; PITH_TEST_FULL=1
// tries many more.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "catch.hpp"
#include "control_world.hpp"
#include "many_seeds.hpp"

using namespace pith;
using namespace pith::test;

namespace {

constexpr CommKey comm = 7;
constexpr double begin_ms = 20;
constexpr double tick_ms = 20;
// From the second of two different calls on. Who has lost its root has to report anew.
constexpr double limit_ms = 1000;
constexpr double limit_with_deaths_ms = 2600;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// All members come to call 1 in their own time, some of them to another one than the rest. Some
// stand still there, some return at once; a message may show somebody that ranks disagree.
class Dispute {
 public:
  explicit Dispute(std::uint64_t seed)
      : world_(static_cast<int>(2 + seed % 29), seed % 5 == 0 ? 32 : 2 + static_cast<int>(seed % 2),
               seed) {
    choose_members();
    choose_calls();
    if (world_.pick(0, 1) == 0) make_deaths();
    go_on();
  }

  // Empty, or what went wrong.
  std::string run() {
    world_.run_until_ms(begin_ms + 4'500);
    for (const int rank : members_) {
      if (world_.fate(rank) != ControlWorld::Fate::lives) continue;
      const std::string wrong = check(rank);
      if (!wrong.empty()) return fmt::format("rank {} of {}: {}", rank, world_.ranks(), wrong);
    }
    return {};
  }

 private:
  struct Member {
    RecordingWatcher watcher;
    CallNote call;
    double begun_ms = 0;
    bool stands_still = false;
    bool shown = false;  // a message of another call will come to it
    double told_ms = 0;
  };

  double now_ms() const { return static_cast<double>(world_.now_ns()) / 1e6; }

  void choose_members() {
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      const bool last_two = rank >= world_.ranks() - 2;
      if (last_two || world_.pick(0, 3) > 0) members_.push_back(rank);
    }
    std::shuffle(members_.begin(), members_.end(), world_.random());
    for (const int rank : members_) {
      world_.plane(rank).add(comm, members_, of_[rank].watcher);
      of_[rank].watcher.waits_in = [this, rank](const Error& death) {
        world_.plane(rank).revoke(comm, death);
      };
    }
  }

  void choose_calls() {
    const int most = static_cast<int>(members_.size());
    const int odd = world_.pick(1, most - 1);
    for (int i = 0; i < most; ++i) {
      const int rank = members_[at(i)];
      Member& member = of_[rank];
      member.call = {1, i < odd ? 11u : 12u, fmt::format("what rank {} calls", rank)};
      member.begun_ms = begin_ms + world_.pick(0, 300'000) / 1e3;
      member.stands_still = world_.pick(0, 2) > 0;
      member.shown = world_.pick(0, 3) == 0;
    }
    // Somebody notices.
    of_[members_[at(world_.pick(0, most - 1))]].stands_still = true;
    first_ms_ = second_ms_ = 1e9;
    for (const auto& [rank, member] : of_) {
      double& begun = member.call.digest == 11 ? first_ms_ : second_ms_;
      begun = std::min(begun, member.begun_ms);
    }
    for (const auto& [rank, member] : of_) {
      world_.at_ms(member.begun_ms, [this, r = rank] { begin(r); });
    }
  }

  void begin(int rank) {
    if (world_.fate(rank) != ControlWorld::Fate::lives) return;
    Member& member = of_[rank];
    member.watcher.calls[1] = member.call;
    if (member.stands_still) member.watcher.stall = Stall{member.call, 0, -1};
    if (!member.shown) return;
    const double both_ms = std::max({first_ms_, second_ms_, member.begun_ms});
    world_.at_ms(both_ms + world_.pick(0, 50), [this, rank] {
      if (world_.fate(rank) == ControlWorld::Fate::lives) {
        world_.plane(rank).suspect(comm, of_[rank].call);
      }
    });
  }

  // Mostly the root, mostly while ranks tell it of the call.
  void make_deaths() {
    for (int i = world_.pick(1, std::min(3, world_.ranks() - 1)); i > 0; --i) {
      const int rank = world_.pick(0, 1) == 0 ? i - 1 : world_.pick(0, world_.ranks() - 1);
      world_.at_ms(begin_ms + world_.pick(0, 900), [this, rank] {
        if (world_.fate(rank) == ControlWorld::Fate::lives) world_.kill(rank);
        died_ = true;
        member_died_ |= of_.contains(rank);
      });
    }
  }

  void go_on() {
    for (auto& [rank, member] : of_) {
      if (member.watcher.stall) member.watcher.stall->seconds = (now_ms() - member.begun_ms) / 1e3;
      if (member.told_ms == 0 && !member.watcher.revoked.empty()) member.told_ms = now_ms();
    }
    world_.at_ms(now_ms() + tick_ms, [this] { go_on(); });
  }

  std::string check(int rank) {
    const Member& member = of_[rank];
    const auto& revoked = member.watcher.revoked;
    if (revoked.size() != 1) return fmt::format("told {} times", revoked.size());
    const Error& error = revoked[0];
    if (error.code() == Code::remote && member_died_) return {};
    if (error.code() != Code::invalid_usage) return std::string("told: ") + error.message();
    if (!is_of_two(error)) return std::string("told of others: ") + error.message();
    const double limit = died_ ? limit_with_deaths_ms : limit_ms;
    const double took = member.told_ms - std::max(first_ms_, second_ms_);
    if (took > limit) return fmt::format("told after {:.0f} ms", took);
    return {};
  }

  // Two members with their own calls, which differ, by their ranks in the communicator.
  bool is_of_two(const Error& error) const {
    const auto words = [&](std::size_t place) {
      return fmt::format("rank {} called {}", place, of_.at(members_[place]).call.text);
    };
    for (std::size_t one = 0; one < members_.size(); ++one) {
      for (std::size_t two = 0; two < members_.size(); ++two) {
        if (of_.at(members_[one]).call.digest == of_.at(members_[two]).call.digest) continue;
        const std::string text = fmt::format(
            "ranks disagree on call 1 of this communicator: {}, {}", words(one), words(two));
        if (text == error.message() && error.rank() == static_cast<int>(two)) return true;
      }
    }
    return false;
  }

  ControlWorld world_;
  std::vector<int> members_;  // by rank of the communicator
  std::map<int, Member> of_;
  double first_ms_ = 0;  // when there was one of each call
  double second_ms_ = 0;
  bool died_ = false;
  bool member_died_ = false;
};

}  // namespace

TEST_CASE("ranks in different calls, and the root dies", "[control]") {
  try_seeds({.daily = 1'000, .full = 10'000}, "test_control \"ranks in different calls*\"",
            [](std::uint64_t seed) { return Dispute(seed).run(); });
}

namespace {

// Rank 1 stands still in a call from 1,000 ms on; the root asks all for it and then takes its time
// before it asks again. Rank 3 comes to another call right after that, and returns.
class MissedByAQuestion {
 public:
  MissedByAQuestion() : world_(4, 32, 1), watchers_(4) {
    for (int rank = 0; rank < 4; ++rank) {
      world_.plane(rank).add(comm, {0, 1, 2, 3}, watchers_[at(rank)]);
    }
    world_.at_ms(1'000, [this] { stand_still(1); });
    world_.at_ms(1'150, [this] { watchers_[3].calls[1] = {1, 12, "what rank 3 calls"}; });
  }
  ControlWorld& world() { return world_; }
  void call(int rank) { watchers_[at(rank)].calls[1] = {1, 11, "what the others call"}; }
  void stand_still(int rank) {
    call(rank);
    watchers_[at(rank)].stall = Stall{watchers_[at(rank)].calls[1], 1, -1};
  }
  void go_on(int rank) { watchers_[at(rank)].stall.reset(); }
  bool all_told() const {
    return std::all_of(watchers_.begin(), watchers_.end(), [](const RecordingWatcher& watcher) {
      return watcher.revoked.size() == 1 && watcher.revoked[0].code() == Code::invalid_usage;
    });
  }

 private:
  ControlWorld world_;
  std::vector<RecordingWatcher> watchers_;
};

}  // namespace

TEST_CASE("who asks for a call that all have just been asked for need not ask again", "[control]") {
  MissedByAQuestion dispute;
  dispute.world().at_ms(1'400, [&] { dispute.go_on(1); });
  dispute.world().at_ms(1'600, [&] { dispute.stand_still(2); });
  dispute.world().run_until_ms(1'650);
  CHECK_FALSE(dispute.all_told());
  dispute.world().run_until_ms(1'150 + limit_ms);
  CHECK(dispute.all_told());
}

// It goes by what it knows itself before long.
TEST_CASE("who has seen a message of another call is not kept waiting", "[control]") {
  MissedByAQuestion dispute;
  dispute.world().at_ms(1'200, [&] {
    dispute.call(2);
    dispute.world().plane(2).suspect(comm, {1, 11, "what the others call"});
  });
  dispute.world().run_until_ms(1'500);
  CHECK(dispute.all_told());
}
