// The control plane by itself, in virtual time. A seed that fails prints how to run it again;
// PITH_TEST_FULL=1 tries many more.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>

#include "catch.hpp"
#include "control_world.hpp"
#include "many_seeds.hpp"

using namespace pith;
using namespace pith::test;

namespace {

constexpr CommKey first_comm = 7;
constexpr int comms = 3;

using Need = ControlPlane::Need;
using Fate = ControlWorld::Fate;

std::string name_of(int rank) { return fmt::format("rank {}", rank); }

// What a rank got of one agreement.
struct Got {
  int times = 0;
  GatherResult result;
};

std::string text_of(const GatherResult& result) {
  std::string text = result.error ? std::string("error ") + result.error.message() : "blobs";
  for (const auto& [rank, blob] : result.blobs) text += " " + blob;
  text += ", dead";
  for (const int rank : result.dead) text += fmt::format(" {}", rank);
  return text;
}

// Ranks of some communicators agree, die, leave and revoke at random; then it becomes quiet, and
// those that are left must know the same.
class Story {
 public:
  // `naps`: ranks also stop for a while; then none leaves, for who does so waits for no sleeper.
  Story(std::uint64_t seed, int ranks_max, bool naps)
      : world_(size_of(seed, ranks_max), fanout_of(seed), seed), naps_(naps) {
    for (int c = 0; c < comms; ++c) make_comm(c);
    make_gathers();
    make_trouble();
    if (naps) make_naps();
  }

  // Empty, or what went wrong.
  std::string run() {
    world_.run_until_ms(20'000);
    std::string wrong;
    for (int rank = 0; rank < world_.ranks() && wrong.empty(); ++rank) {
      if (world_.fate(rank) != Fate::lives) continue;
      wrong = check_facts(rank);
      if (wrong.empty()) wrong = check_comms(rank);
      if (wrong.empty()) wrong = check_forgotten(rank);
    }
    if (wrong.empty()) wrong = check_gathers();
    if (wrong.empty() && deaths_ == 0 && world_.longest_leave_ns() >= 600'000'000) {
      wrong = fmt::format("a departure took {} ms", world_.longest_leave_ns() / 1'000'000);
    }
    return wrong;
  }

 private:
  struct Comm {
    std::vector<int> members;
    std::map<int, std::unique_ptr<RecordingWatcher>> watchers;
    std::set<int> removed;
    std::set<std::string> causes;
    std::set<int> revoked_by;
  };
  struct Gather {
    int comm;
    Need need;
    std::map<int, Got> got;  // by rank that takes part
  };

  static int size_of(std::uint64_t seed, int most) {
    return static_cast<int>(2 + (seed * 0x9E3779B97F4A7C15u >> 33) %
                                    static_cast<std::uint64_t>(most - 1));
  }
  static int fanout_of(std::uint64_t seed) { return seed % 5 == 0 ? 32 : 2 + int(seed % 2); }
  static CommKey key(int comm) { return first_comm + static_cast<CommKey>(comm); }
  double some_time() { return 20 + world_.pick(0, 2'000'000) / 1000.0; }

  void make_comm(int c) {
    Comm& comm = comms_[static_cast<std::size_t>(c)];
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      if (c == 0 || world_.pick(0, 2) > 0) comm.members.push_back(rank);
    }
    std::shuffle(comm.members.begin() + (c == 2 ? 0 : comm.members.end() - comm.members.begin()),
                 comm.members.end(), world_.random());
    for (const int rank : comm.members) {
      auto& watcher = comm.watchers[rank] = std::make_unique<RecordingWatcher>();
      world_.plane(rank).add(key(c), comm.members, *watcher);
    }
  }

  void make_gathers() {
    for (std::uint32_t round = 0; round < 6; ++round) {
      const int c = world_.pick(0, comms - 1);
      if (comms_[static_cast<std::size_t>(c)].members.empty()) continue;
      auto& gather = gathers_.emplace_back();
      gather.comm = c;
      gather.need = world_.pick(0, 1) == 0 ? Need::all : Need::live;
      const double begin = some_time();
      const GatherKey gather_key{key(c), round};
      for (const int rank : comms_[static_cast<std::size_t>(c)].members) {
        world_.at_ms(begin + world_.pick(0, 30'000) / 1000.0,
                     [this, &gather, gather_key, rank] { take_part(gather, gather_key, rank); });
      }
    }
  }

  void take_part(Gather& gather, const GatherKey& gather_key, int rank) {
    const Comm& comm = comms_[static_cast<std::size_t>(gather.comm)];
    if (world_.fate(rank) == Fate::stopped) {
      const double later_ms = static_cast<double>(world_.now_ns()) / 1e6 + 50;
      return world_.at_ms(
          later_ms, [this, &gather, gather_key, rank] { take_part(gather, gather_key, rank); });
    }
    if (world_.fate(rank) != Fate::lives || comm.removed.contains(rank)) return;
    Got& got = gather.got[rank];
    world_.plane(rank).gather(gather_key, gather.need, comm.members, std::to_string(rank),
                              [&got](const GatherResult& result) {
                                ++got.times;
                                got.result = result;
                              });
  }

  void remove(int c, int rank) {
    Comm& comm = comms_[static_cast<std::size_t>(c)];
    if (!comm.watchers.contains(rank) || !comm.removed.insert(rank).second) return;
    world_.plane(rank).remove(key(c), comm.members);
  }

  void leave(int rank) {
    if (world_.fate(rank) != Fate::lives) return;
    for (int c = 0; c < comms; ++c) remove(c, rank);
    world_.leave(rank);
  }

  void make_trouble() {
    const int kinds = world_.pick(0, 3);
    const int deaths = kinds == 0 ? 0 : world_.pick(0, std::min(5, world_.ranks() - 1));
    deaths_ = deaths;
    const double together = some_time();
    for (int i = 0; i < deaths; ++i) {
      // Often the root, often at the same time.
      const int rank = world_.pick(0, 1) == 0 ? i : world_.pick(0, world_.ranks() - 1);
      const double when = world_.pick(0, 1) == 0 ? together + world_.pick(0, 30) : some_time();
      world_.at_ms(when, [this, rank] {
        // Who has said that it leaves is not missed.
        if (world_.fate(rank) == Fate::lives) world_.kill(rank);
      });
    }
    const int departures = kinds == 1 ? world_.ranks() : world_.pick(0, 3);
    for (int i = 0; kinds != 2 && i < departures && !naps_; ++i) {
      const int rank = departures > 3 ? i : world_.pick(0, world_.ranks() - 1);
      if (departures > 3 && world_.pick(0, 9) == 0) continue;
      const double when = world_.pick(0, 2) > 0 ? together + world_.pick(0, 30) : some_time();
      world_.at_ms(when, [this, rank] { leave(rank); });
    }
    for (int i = world_.pick(0, 2); i > 0; --i) make_revocation();
    for (int i = world_.pick(0, 3); i > 0; --i) {
      const int c = world_.pick(0, comms - 1);
      const int rank = world_.pick(0, world_.ranks() - 1);
      world_.at_ms(some_time(), [this, c, rank] {
        if (world_.fate(rank) == Fate::lives) remove(c, rank);
      });
    }
  }

  // Shorter than others wait for their answers to a roll.
  void make_naps() {
    for (int i = world_.pick(1, 4); i > 0; --i) {
      const int rank = world_.pick(0, 1) == 0 ? i : world_.pick(0, world_.ranks() - 1);
      const double begin_ms = some_time();
      if (rank >= world_.ranks()) continue;
      world_.at_ms(begin_ms, [this, rank] {
        if (world_.fate(rank) == Fate::lives) world_.stop(rank);
      });
      world_.at_ms(begin_ms + world_.pick(100, 2'500), [this, rank] { world_.wake(rank); });
    }
  }

  void make_revocation() {
    const int c = world_.pick(0, comms - 1);
    Comm& comm = comms_[static_cast<std::size_t>(c)];
    if (comm.members.empty()) return;
    const int rank = comm.members[at(world_.pick(0, static_cast<int>(comm.members.size()) - 1))];
    world_.at_ms(some_time(), [this, c, &comm, rank] {
      if (world_.fate(rank) != Fate::lives || comm.removed.contains(rank)) return;
      const std::string cause = name_of(rank) + " gave up";
      comm.causes.insert(cause);
      comm.revoked_by.insert(rank);
      world_.plane(rank).revoke(key(c), Error(Code::remote, cause, rank));
    });
  }

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  std::string check_facts(int rank) {
    std::vector<int> dead;
    for (int other = 0; other < world_.ranks(); ++other) {
      if (world_.fate(other) == Fate::dead) dead.push_back(other);
    }
    const std::vector<int> known = world_.plane(rank).dead();
    for (const int other : dead) {
      if (!std::binary_search(known.begin(), known.end(), other)) {
        return fmt::format("rank {} does not know that rank {} is dead", rank, other);
      }
    }
    // Who leaves among deaths may have told only ranks that died.
    for (const int other : known) {
      if (!dead.empty()) break;
      if (!std::binary_search(dead.begin(), dead.end(), other)) {
        return fmt::format("rank {} takes rank {} for dead: {}", rank, other,
                           world_.plane(rank).cause_of(other));
      }
    }
    return {};
  }

  std::string check_comms(int rank) {
    for (Comm& comm : comms_) {
      if (!comm.watchers.contains(rank) || comm.removed.contains(rank)) continue;
      const auto& revoked = comm.watchers[rank]->revoked;
      const std::string where = fmt::format("rank {}, comm {}: ", rank, &comm - comms_.data());
      if (revoked.size() > 1) return where + "told twice that it is revoked";
      const bool own = comm.causes.contains(name_of(rank) + " gave up");
      const std::string wrong = check_dead(comm, comm.watchers[rank]->dead);
      if (!wrong.empty()) return where + wrong;
      if (revoked.empty() && !comm.causes.empty() && !own && !died_untold(comm)) {
        return where + "not told that it is revoked";
      }
      if (revoked.empty()) continue;
      const std::string text = revoked[0].message();
      if (!comm.causes.contains(text)) return where + "revoked for nothing: " + text;
    }
    return {};
  }

  // Whether who revoked it may have died before it could tell anybody: its parent was stopped. Then
  // no rank that lives knows.
  bool died_untold(const Comm& comm) {
    const auto is_dead = [&](int rank) { return world_.fate(rank) == Fate::dead; };
    return naps_ && std::ranges::all_of(comm.revoked_by, is_dead) &&
           std::ranges::all_of(comm.watchers, [&](const auto& one) {
             return is_dead(one.first) || one.second->revoked.empty();
           });
  }

  // Each death was told once, and no other, but for those who left and could tell only ranks that
  // died.
  std::string check_dead(const Comm& comm, const std::vector<Error>& told) {
    std::vector<int> places;
    for (const Error& death : told) places.push_back(death.rank());
    for (std::size_t place = 0; place < comm.members.size(); ++place) {
      const auto times = std::count(places.begin(), places.end(), static_cast<int>(place));
      const Fate fate = world_.fate(comm.members[place]);
      if (times == (fate == Fate::dead ? 1 : 0)) continue;
      if (times == 1 && fate != Fate::lives) continue;
      return fmt::format("told {} times of the death of rank {}", times, place);
    }
    return {};
  }

  // What nobody holds any more is forgotten, also by those who were no members.
  std::string check_forgotten(int rank) {
    const std::vector<CommKey> known = world_.plane(rank).remembered();
    for (int c = 0; c < comms; ++c) {
      const Comm& comm = comms_[static_cast<std::size_t>(c)];
      const bool held = std::any_of(comm.members.begin(), comm.members.end(), [&](int member) {
        return world_.fate(member) == Fate::lives && !comm.removed.contains(member);
      });
      if (held || !std::binary_search(known.begin(), known.end(), key(c))) continue;
      return fmt::format("rank {} still remembers comm {}, which nobody holds", rank, c);
    }
    return {};
  }

  std::string check_gathers() {
    for (std::size_t i = 0; i < gathers_.size(); ++i) {
      const Gather& gather = gathers_[i];
      const Comm& comm = comms_[static_cast<std::size_t>(gather.comm)];
      const std::string where = fmt::format("gather {}, ", i);
      std::string agreed;
      for (const auto& [rank, got] : gather.got) {
        const std::string who = where + name_of(rank);
        const bool holds = world_.fate(rank) == Fate::lives && !comm.removed.contains(rank);
        if (got.times > 1) return who + " got two results";
        if (holds && got.times == 0) return who + " waits for ever";
        if (got.times == 0 || world_.fate(rank) == Fate::dead) continue;
        const std::string text = text_of(got.result);
        if (agreed.empty()) agreed = text;
        if (text != agreed) return who + " got " + text + ", others " + agreed;
        if (got.result.error) continue;
        if (gather.need == Need::all && got.result.blobs.size() != comm.members.size()) {
          return who + " got too little";
        }
        if (holds && !got.result.blobs.contains(rank)) return who + " is missing in its result";
      }
    }
    return {};
  }

  ControlWorld world_;
  const bool naps_;
  int deaths_ = 0;
  std::array<Comm, comms> comms_;
  std::deque<Gather> gathers_;
};

void run_stories(std::uint64_t first, std::uint64_t daily, int ranks_max, bool naps = false) {
  const std::string how =
      fmt::format("test_control \"up to {} ranks {}*\"", ranks_max, naps ? "stop" : "die");
  try_seeds({first, daily, 10 * daily}, how,
            [ranks_max, naps](std::uint64_t seed) { return Story(seed, ranks_max, naps).run(); });
}

}  // namespace

TEST_CASE("up to 8 ranks die, leave, revoke and agree", "[control]") { run_stories(1, 2000, 8); }

TEST_CASE("up to 30 ranks die, leave, revoke and agree", "[control]") {
  run_stories(1'000'000, 300, 30);
}

TEST_CASE("up to 100 ranks die, leave, revoke and agree", "[control]") {
  run_stories(2'000'000, 30, 100);
}

TEST_CASE("up to 30 ranks stop for a while, die, revoke and agree", "[control][long]") {
  run_stories(3'000'000, 1000, 30, true);
}
