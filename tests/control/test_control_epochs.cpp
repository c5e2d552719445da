// Parameters that change while calls run, in virtual time: ranks call at random speeds on
// communicators that overlap, their control planes hear late, die, or let go of a communicator.
// Every call must have the same parameters on all ranks.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "all_ranks.hpp"
#include "catch.hpp"
#include "control/epoch_gate.hpp"
#include "control/members.hpp"
#include "control_world.hpp"
#include "core/call_number.hpp"
#include "core/process_fence.hpp"
#include "epoch_caller.hpp"
#include "many_seeds.hpp"
#include "sanitized.hpp"

using namespace pith;
using namespace pith::test;

namespace {

struct Comm {
  CommKey key = 0;
  std::vector<int> ranks;
  std::vector<std::unique_ptr<Member>> members;
  std::uint64_t window = 0;  // how far calls of a rank may be ahead of those of another one
  std::uint32_t proposed = 0;
  // Of each call, by the rank that took its number last.
  struct Taken {
    std::uint32_t version = 0;
    int rank = -1;
  };
  std::vector<Taken> calls;
};

// What may happen in a story.
struct Trouble {
  bool deaths = false;
  bool lateness = false;  // control planes do not get on for a while, their calls do
  bool ends = false;      // somebody lets go of a communicator, or revokes it
  bool slow = false;      // few calls come in the time of an agreement
};

struct Totals {
  std::uint64_t calls = 0;
  EpochGate::Counts counts;
};

class Story {
 public:
  Story(std::uint64_t seed, const Trouble& trouble)
      : trouble_(trouble), random_(seed), world_(pick(2, 9), pick(2, 4), seed) {
    make_comms();
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      at_ms(pick(0, 100), [this, rank] { go_on(rank); });
    }
    for (Comm& comm : comms_) at_ms(pick(10, 300), [this, &comm] { propose(comm); });
    if (trouble.lateness) at_ms(pick(0, 200), [this] { make_late(); });
    const int deaths = trouble.deaths ? pick(1, 3) : 0;
    for (int i = 0; i < deaths; ++i) {
      at_ms(pick(50, busy_ms), [this] { world_.kill(pick(0, world_.ranks() - 1)); });
    }
    if (trouble.ends) at_ms(pick(50, busy_ms), [this] { end_one(); });
  }

  // Empty, or what went wrong.
  std::string run() {
    world_.run_until_ms(busy_ms);
    proposing_ = false;
    world_.run_until_ms(busy_ms + quiet_ms);
    if (wrong_.empty()) check_end();
    return wrong_;
  }
  void add_to(Totals& totals) const {
    for (const Comm& comm : comms_) {
      totals.calls += comm.calls.size();
      for (const auto& member : comm.members) {
        const EpochGate::Counts counts = member->caller.gate().counts();
        totals.counts.promised += counts.promised;
        totals.counts.refused += counts.refused;
        totals.counts.committed += counts.committed;
        totals.counts.cancelled += counts.cancelled;
        totals.counts.waited += counts.waited;
      }
    }
  }

 private:
  static constexpr int busy_ms = 3'000;
  static constexpr int quiet_ms = 1'500;

  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  double now_ms() const { return static_cast<double>(world_.now_ns()) / 1e6; }
  template <class Action>
  void at_ms(double ms, Action action) {
    world_.at_ms(ms, std::move(action));
  }
  bool is_dead(int rank) const { return world_.fate(rank) == ControlWorld::Fate::dead; }
  bool takes_part(const Member& member) const { return !member.away && !is_dead(member.rank); }
  bool is_in_use(const Member& member) const {
    return takes_part(member) && member.watcher.revoked.empty();
  }

  void make_comms() {
    const int count = pick(1, 4);
    comms_.resize(at(count));
    for (Comm& comm : comms_) {
      comm.key = CommKey{100} + static_cast<CommKey>(&comm - comms_.data());
      for (int rank = 0; rank < world_.ranks(); ++rank) {
        if (&comm == &comms_.front() || pick(0, 2) > 0) comm.ranks.push_back(rank);
      }
      if (comm.ranks.size() < 2) comm.ranks = {0, world_.ranks() - 1};
      std::ranges::shuffle(comm.ranks, random_);
      comm.window = static_cast<std::uint64_t>(std::array{1, 8, 100, 1000}[at(pick(0, 3))]);
      const bool wraps = pick(0, 2) == 0;
      const auto first = wraps ? call_numbers - static_cast<std::uint32_t>(pick(0, 20'000)) : 1u;
      for (const int rank : comm.ranks) {
        comm.members.push_back(std::make_unique<Member>(rank, first));
      }
      for (const auto& member : comm.members) {
        // Some are made later at some ranks than at others.
        at_ms(pick(0, 60), [this, &comm, one = member.get()] {
          if (!is_dead(one->rank)) world_.plane(one->rank).add(comm.key, comm.ranks, one->watcher);
        });
      }
    }
  }

  // --- calls ---

  // One thread issues all calls of a rank, so where one waits, the rank does.
  void go_on(int rank) {
    if (is_dead(rank) || !wrong_.empty()) return;
    const int offset = pick(0, static_cast<int>(comms_.size()) - 1);
    for (std::size_t i = 0; i < comms_.size(); ++i) {
      Comm& comm = comms_[(i + at(offset)) % comms_.size()];
      const auto place = place_of(comm.ranks, rank);
      if (place < 0) continue;
      Member& member = *comm.members[at(place)];
      if (!is_in_use(member)) continue;
      burst(comm, member);
      if (member.caller.waits()) break;
    }
    const int slow = (pick(0, 20) == 0 ? 50 : 1) * (trouble_.slow ? 10 : 1);
    at_ms(now_ms() + pick(20, 1000) * slow / 1e3, [this, rank] { go_on(rank); });
  }

  void burst(Comm& comm, Member& member) {
    std::uint64_t slowest = ~std::uint64_t{0};
    for (const auto& one : comm.members) {
      if (takes_part(*one)) slowest = std::min(slowest, one->caller.taken());
    }
    const std::uint64_t most = slowest + comm.window;
    for (int left = pick(1, trouble_.slow ? 3 : 60); left > 0 && member.caller.taken() < most;
         --left) {
      if (!member.caller.take()) break;
      note(comm, member);
    }
    if (member.caller.barred()) world_.plane(member.rank).revoke(comm.key, barred_error());
  }
  static Error barred_error() { return {Code::remote, "barred"}; }

  void note(Comm& comm, const Member& member) {
    const std::uint64_t nth = member.caller.taken() - 1;
    if (comm.calls.size() <= nth) comm.calls.resize(nth + 1);
    Comm::Taken& taken = comm.calls[nth];
    const std::uint32_t version = member.caller.version();
    const bool differs = taken.rank >= 0 && !is_dead(taken.rank) && taken.version != version;
    taken = {version, member.rank};
    if (differs && wrong_.empty()) {
      wrong_ = "call " + std::to_string(nth + 1) + " of communicator " + std::to_string(comm.key) +
               " has other parameters on rank " + std::to_string(member.rank);
    }
    if (version != 0 && member.caller.blob() != blob_of(comm, version)) wrong_ = "a wrong blob";
  }

  // --- proposals, and what comes in between ---

  static std::string blob_of(const Comm& comm, std::uint32_t version) {
    return std::to_string(comm.key) + " " + std::to_string(version);
  }
  void propose(Comm& comm) {
    if (!proposing_) return;
    Member& root = *comm.members.front();
    if (takes_part(root) && world_.fate(root.rank) == ControlWorld::Fate::lives) {
      if (world_.plane(root.rank).propose(comm.key, blob_of(comm, comm.proposed + 1))) {
        ++comm.proposed;
        world_.turn_soon(root.rank);
        if (trouble_.deaths && pick(0, 15) == 0) kill_soon(comm);
      }
    }
    at_ms(now_ms() + pick(5, 300), [this, &comm] { propose(comm); });
  }
  // While the proposal is on its way; one by whom it goes on to others, perhaps.
  void kill_soon(const Comm& comm) {
    std::vector<int> others;
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      if (!contains(comm.ranks, rank) && !is_dead(rank)) others.push_back(rank);
    }
    if (others.empty()) return;
    const int victim = others[at(pick(0, static_cast<int>(others.size()) - 1))];
    at_ms(now_ms() + pick(0, 3'000) / 1e3, [this, victim] { world_.kill(victim); });
  }
  void make_late() {
    const int rank = pick(0, world_.ranks() - 1);
    if (proposing_ && world_.fate(rank) == ControlWorld::Fate::lives) {
      world_.stop(rank);
      at_ms(now_ms() + pick(1, 400), [this, rank] {
        world_.wake(rank);
        world_.turn_soon(rank);
      });
    }
    at_ms(now_ms() + pick(1, 200), [this] { make_late(); });
  }
  void end_one() {
    Comm& comm = comms_[at(pick(0, static_cast<int>(comms_.size()) - 1))];
    Member& member = *comm.members[at(pick(0, static_cast<int>(comm.ranks.size()) - 1))];
    if (world_.fate(member.rank) != ControlWorld::Fate::lives) return;
    if (pick(0, 1) == 0) {
      world_.plane(member.rank).revoke(comm.key, Error(Code::remote, "gave up"), false);
      return world_.turn_soon(member.rank);
    }
    member.away = true;
    world_.plane(member.rank).remove(comm.key, comm.ranks);
  }

  // Nothing is open for ever.
  void check_end() {
    for (const Comm& comm : comms_) {
      for (const auto& member : comm.members) {
        if (!is_in_use(*member)) continue;
        if (member->caller.waits() || member->caller.barred()) {
          wrong_ = "rank " + std::to_string(member->rank) + " does not get on, call " +
                   std::to_string(member->caller.taken() + 1) + " of communicator " +
                   std::to_string(comm.key) + (member->caller.waits() ? " waits" : " is barred");
        }
      }
    }
  }

  const Trouble trouble_;
  std::mt19937_64 random_;
  ControlWorld world_;
  std::vector<Comm> comms_;
  bool proposing_ = true;
  std::string wrong_;
};

std::string text_of(const Totals& totals) {
  const EpochGate::Counts& counts = totals.counts;
  return std::to_string(totals.calls) + " calls; promises " + std::to_string(counts.promised) +
         ", refusals " + std::to_string(counts.refused) + ", commits " +
         std::to_string(counts.committed) + ", cancels " + std::to_string(counts.cancelled) +
         ", waits " + std::to_string(counts.waited);
}

}  // namespace

TEST_CASE("calls have the same parameters on all ranks, whatever arrives when", "[control][long]") {
  Totals totals;
  const std::uint64_t stories = try_seeds(
      {1, 500, 5'000}, "test_control 'calls have the same parameters*'", [&](std::uint64_t seed) {
        const Trouble trouble{(seed & 1) != 0, (seed & 2) != 0, (seed & 4) != 0, (seed & 24) == 24};
        Story story(seed, trouble);
        std::string wrong = story.run();
        story.add_to(totals);
        return wrong;
      });
  INFO(text_of(totals));
  if (stories < 500) return;
  CHECK(totals.calls >= 10'000'000);
  CHECK(totals.counts.committed > 10'000);
  CHECK(totals.counts.cancelled > 1'000);
  CHECK(totals.counts.waited > 1'000);
}

// One thread issues calls as fast as it can while another one promises, close ahead of it, and
// moves the stop.
TEST_CASE("a promised call is not begun before its change is decided", "[control]") {
  const std::uint32_t changes = full ? 20'000 : 1'000;
  std::atomic<std::uint32_t> next{call_numbers - 100'000};
  EpochGate gate(next);
  std::vector<std::atomic<std::uint32_t>> first(changes + 1);
  std::atomic<bool> ended{false};
  std::atomic<int> wrong{0};
  std::thread calls([&] {
    std::uint32_t version = 0;
    while (!ended.load(std::memory_order_relaxed)) {
      const std::uint32_t number = next.load(std::memory_order_relaxed);
      if (gate.stops(number)) {
        if (gate.pass(number) == EpochGate::Passage::waits) {
          std::this_thread::yield();
          continue;
        }
        const std::uint32_t now = gate.parameters()->version;
        wrong += now != version && first[now].load() != number;
        version = now;
      }
      next.store(next_number(number), std::memory_order_relaxed);
      fenced_from_elsewhere();
    }
  });
  std::mt19937 random(1);
  std::uint32_t committed = 0;
  for (std::uint32_t version = 1; version <= changes; ++version) {
    const auto promised = gate.promise(std::uint32_t(random() % 200), {version, ""});
    if (!promised) continue;
    for (std::uint64_t n = random() % 500; n > 0; --n) {
      if (is_later(gate.next(), *promised)) ++wrong;
    }
    if (version % 2 == 0) {
      gate.cancel(version);
    } else {
      first[version] = number_after(*promised, std::uint32_t(random() % 3 * (random() % 100)));
      gate.commit(version, first[version]);
      ++committed;
      while (!gate.is_idle() && !is_later(gate.next(), first[version])) std::this_thread::yield();
      wrong += !gate.is_idle();
    }
  }
  ended = true;
  calls.join();
  CHECK(wrong == 0);
  const EpochGate::Counts counts = gate.counts();
  INFO("promised " << counts.promised << ", refused " << counts.refused << ", waited "
                   << counts.waited);
  CHECK(counts.promised > 0);
  CHECK(counts.committed == committed);
  CHECK(counts.promised == counts.committed + counts.cancelled);
}
