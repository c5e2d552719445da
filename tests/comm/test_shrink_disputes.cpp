// Ranks of which some shrink a communicator while others are in a call, in virtual time: all hear
// who did what, also when the root dies in between, and then find each other in a shrink. Who is
// left out may be in anything. A seed that fails prints how to run it again; PITH_TEST_FULL=1 tries
// many more.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "catch.hpp"
#include "comm/children/child_agreement.hpp"
#include "control/members.hpp"
#include "many_seeds.hpp"
#include "tests/control/control_world.hpp"

using namespace pith;
using namespace pith::test;

namespace {

constexpr CommKey comm = 7;
constexpr std::uint32_t number = 1;  // of the call that all come to next
constexpr double begin_ms = 20;
constexpr double tick_ms = 20;
constexpr double end_ms = 9'000;
// From the first shrink beside a call on. Who has lost its root has to report anew.
constexpr double limit_ms = 1000;
constexpr double limit_with_deaths_ms = 2600;

enum class Plot {
  dispute,   // some stay in the call until they hear that others shrink
  together,  // all shrink, each in its own time, and go on to the call on the old communicator
  revoked,   // one revokes it, and all shrink as soon as they hear of it, or somewhat before
};

class Scene {
 public:
  explicit Scene(std::uint64_t seed)
      : world_(static_cast<int>(3 + seed % 28), seed % 5 == 0 ? 32 : 2 + static_cast<int>(seed % 2),
               seed),
        plot_(static_cast<Plot>(seed % 3)) {
    choose_members();
    choose_parts();
    if (plot_ != Plot::together && world_.pick(0, 1) == 0) make_deaths();
    go_on();
  }

  // Empty, or what went wrong.
  std::string run() {
    world_.run_until_ms(end_ms);
    for (const int rank : members_) {
      if (!lives(rank) || contains(excluded_, rank)) continue;
      const std::string wrong = check(rank);
      if (!wrong.empty()) return fmt::format("rank {} of {}: {}", rank, world_.ranks(), wrong);
    }
    return {};
  }

 private:
  struct Member {
    RecordingWatcher watcher;
    ChildRounds rounds;
    std::unique_ptr<Shrink> shrink;
    CallNote call;
    bool calls = false;         // first of all, else it shrinks
    bool stands_still = false;  // in that call, else it has returned
    bool in_call = false;
    double begins_ms = 0;
    bool was_healthy = false;  // the communicator, when it shrank first
    std::vector<Error> refused;
    double told_ms = 0;
    std::vector<int> survivors;
  };

  double now_ms() const { return static_cast<double>(world_.now_ns()) / 1e6; }
  bool lives(int rank) const { return world_.fate(rank) == ControlWorld::Fate::lives; }

  void choose_members() {
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      const bool last_three = rank >= world_.ranks() - 3;
      if (last_three || world_.pick(0, 3) > 0) members_.push_back(rank);
    }
    std::shuffle(members_.begin(), members_.end(), world_.random());
    for (const int rank : members_) {
      world_.plane(rank).add(comm, members_, of_[rank].watcher);
      of_[rank].watcher.waits_in = [this, rank](const Error& death) {
        world_.plane(rank).revoke(comm, death);
      };
      const int others = static_cast<int>(members_.size() - excluded_.size());
      if (others > 2 && world_.pick(0, 4) == 0) excluded_.push_back(rank);
    }
    for (std::size_t place = 0; place < members_.size(); ++place) {
      if (contains(excluded_, members_[place])) excluded_places_.push_back(static_cast<int>(place));
    }
  }

  void choose_parts() {
    std::vector<int> taking_part;
    for (const int rank : members_) {
      Member& member = of_[rank];
      const bool out = contains(excluded_, rank);
      member.call = {number, 11, fmt::format("what rank {} calls", rank)};
      const int late_ms = plot_ == Plot::together ? 900 : 300;
      member.begins_ms = begin_ms + world_.pick(0, late_ms * 1000) / 1e3;
      member.stands_still = world_.pick(0, 2) > 0;
      member.calls = out ? world_.pick(0, 1) == 0 : plot_ != Plot::together && world_.pick(0, 1);
      if (!out) taking_part.push_back(rank);
    }
    if (plot_ == Plot::dispute) {
      of_[taking_part[0]].calls = true;
      of_[taking_part[1]].calls = false;
    }
    if (plot_ == Plot::revoked) {
      const int by = taking_part[0];
      of_[by].calls = false;
      world_.at_ms(begin_ms, [this, by] {
        if (!lives(by)) return;
        world_.plane(by).revoke(comm, Error(Code::remote, "gave up", 0));
        revoked_here_.push_back(by);
      });
      for (const int rank : taking_part) of_[rank].begins_ms = begin_ms + world_.pick(0, 60);
    }
    for (const int rank : members_) {
      if (contains(excluded_, rank) && !of_[rank].calls) continue;  // it computes
      world_.at_ms(of_[rank].begins_ms, [this, rank] { begin(rank); });
    }
  }

  // Mostly the root, mostly while ranks tell it of the call.
  void make_deaths() {
    for (int i = world_.pick(1, std::min(2, world_.ranks() - 2)); i > 0; --i) {
      const int rank = world_.pick(0, 1) == 0 ? i - 1 : world_.pick(0, world_.ranks() - 1);
      world_.at_ms(begin_ms + world_.pick(0, 900), [this, rank] {
        if (lives(rank)) world_.kill(rank);
        died_ = true;
        member_died_ |= of_.contains(rank);
      });
    }
  }

  void begin(int rank) {
    if (!lives(rank)) return;
    Member& member = of_[rank];
    if (!member.calls) return begin_shrink(rank);
    member.watcher.calls[number] = member.call;
    member.in_call = true;
    if (member.stands_still) member.watcher.stall = Stall{member.call, 0, -1};
  }

  bool knows_end(int rank) {
    return contains(revoked_here_, rank) || !of_[rank].watcher.revoked.empty();
  }

  void begin_shrink(int rank) {
    if (!lives(rank)) return;
    Member& member = of_[rank];
    const bool healthy = !knows_end(rank);
    if (!member.shrink) member.was_healthy = healthy;
    member.shrink = std::make_unique<Shrink>(comm, members_, rank, excluded_places_, member.rounds,
                                             healthy ? number : 0);
    go_on_with_shrink(rank);
  }

  void go_on_with_shrink(int rank) {
    Member& member = of_[rank];
    Shrink& shrink = *member.shrink;
    if (shrink.step() == ChildStep::make) shrink.made(Error());
    if (shrink.step() == ChildStep::end) return end_shrink(rank);
    const Question question = shrink.question(0);
    world_.plane(rank).gather(
        question.key, question.need, question.participants, question.blob,
        [this, rank](const GatherResult& result) {
          of_[rank].shrink->hear(result);
          go_on_with_shrink(rank);
        },
        question.call);
    world_.turn_soon(rank);
  }

  void end_shrink(int rank) {
    Member& member = of_[rank];
    if (!member.shrink->error()) {
      member.survivors = member.shrink->members();
      if (plot_ != Plot::together) return;
      // The old one is still there for calls.
      member.calls = member.stands_still = true;
      member.begins_ms = now_ms() + world_.pick(0, 20);
      return world_.at_ms(member.begins_ms, [this, rank] { begin(rank); });
    }
    member.refused.push_back(member.shrink->error());
    tell(member);
    if (member.refused.size() == 4) return;
    world_.at_ms(now_ms() + world_.pick(0, 50), [this, rank] { begin_shrink(rank); });
  }

  void tell(Member& member) const {
    if (member.told_ms == 0) member.told_ms = now_ms();
  }

  void go_on() {
    for (auto& [rank, member] : of_) {
      if (member.watcher.stall) member.watcher.stall->seconds = (now_ms() - member.begins_ms) / 1e3;
      if (!member.in_call || !knows_end(rank) || !lives(rank)) continue;
      tell(member);
      member.in_call = false;
      member.watcher.stall.reset();
      if (contains(excluded_, rank)) continue;
      world_.at_ms(now_ms() + world_.pick(0, 50), [this, r = rank] { begin_shrink(r); });
    }
    world_.at_ms(now_ms() + tick_ms, [this] { go_on(); });
  }

  std::string check(int rank) {
    const Member& member = of_[rank];
    if (member.survivors.empty()) return "has not shrunk";
    for (const int other : members_) {
      if (!lives(other) || contains(excluded_, other)) continue;
      if (of_[other].survivors != member.survivors) return "shrank to others than its peers";
      if (!contains(member.survivors, other)) return fmt::format("shrank without {}", other);
    }
    for (const int out : excluded_) {
      if (contains(member.survivors, out)) return fmt::format("shrank with {}", out);
    }
    if (plot_ == Plot::dispute) return check_dispute(member);
    const std::size_t revocations = plot_ == Plot::revoked ? 1 : 0;
    if (!contains(revoked_here_, rank) && member.watcher.revoked.size() != revocations) {
      return fmt::format("was told {} times", member.watcher.revoked.size());
    }
    // Where the root died, the others may have disagreed before it was known.
    if (!member.refused.empty() && !died_) {
      return std::string("was refused: ") + member.refused[0].message();
    }
    return {};
  }

  std::string check_dispute(const Member& member) {
    if (member.watcher.revoked.size() != 1) {
      return fmt::format("was told {} times", member.watcher.revoked.size());
    }
    if (member_died_) return {};
    const bool heard_late = !member.calls && !member.was_healthy;
    const bool refused = !member.refused.empty();
    if (refused == (member.calls || heard_late)) return "was refused wrongly, or not at all";
    const Error& error = refused ? member.refused[0] : member.watcher.revoked[0];
    if (error.code() != Code::invalid_usage || !is_of_two(error)) {
      return std::string("was told: ") + error.message();
    }
    const double took = member.told_ms - both_ms(member);
    const double limit = died_ ? limit_with_deaths_ms : limit_ms;
    if (!heard_late && took > limit) return fmt::format("was told after {:.0f} ms", took);
    return {};
  }

  // Since when this one and another one are in different calls.
  double both_ms(const Member& member) const {
    double other_ms = 1e9;
    for (const auto& [rank, other] : of_) {
      if (contains(excluded_, rank) || other.calls == member.calls) continue;
      other_ms = std::min(other_ms, other.begins_ms);
    }
    return std::max(other_ms, member.begins_ms);
  }

  // One that was in the call and one that shrank, none of which was left out.
  bool is_of_two(const Error& error) const {
    std::string shrinks = "shrink";
    const std::size_t out = excluded_places_.size();
    const std::size_t named = std::min<std::size_t>(8, out);
    for (std::size_t i = 0; i < named; ++i) {
      shrinks += fmt::format("{} rank {}", i == 0 ? " without" : ",", excluded_places_[i]);
    }
    if (out > named) shrinks += fmt::format(" and {} more", out - named);
    const auto words = [&](int rank) {
      const Member& member = of_.at(rank);
      return fmt::format("rank {} called {}", place_of(members_, rank),
                         member.calls ? member.call.text : shrinks);
    };
    for (const int one : members_) {
      for (const int two : members_) {
        if (one > two || of_.at(one).calls == of_.at(two).calls) continue;
        if (contains(excluded_, one) || contains(excluded_, two)) continue;
        const std::string text = fmt::format(
            "ranks disagree on call 1 of this communicator: {}, {}", words(one), words(two));
        if (text == error.message() && error.rank() == place_of(members_, two)) return true;
      }
    }
    return false;
  }

  ControlWorld world_;
  const Plot plot_;
  std::vector<int> members_;  // by rank of the communicator
  std::vector<int> excluded_;
  std::vector<int> excluded_places_;  // the same, as ranks of the communicator
  std::vector<int> revoked_here_;     // who need not be told
  std::map<int, Member> of_;
  bool died_ = false;
  bool member_died_ = false;
};

}  // namespace

TEST_CASE("some shrink a communicator and others are in a call", "[control]") {
  try_seeds({.daily = 1'500, .full = 20'000}, "test_survival \"some shrink a communicator*\"",
            [](std::uint64_t seed) { return Scene(seed).run(); });
}
