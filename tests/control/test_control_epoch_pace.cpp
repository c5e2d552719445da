// When a change of parameters comes into force, and whether calls wait for it: ranks in virtual
// time whose calls come at different paces.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "all_ranks.hpp"
#include "catch.hpp"
#include "control_world.hpp"
#include "core/call_number.hpp"
#include "epoch_caller.hpp"

using namespace pith;
using namespace pith::test;

TEST_CASE("the stop moves on to the first call of the change", "[control]") {
  const std::uint32_t begin = GENERATE(1u, 100u, call_numbers - 4);
  Caller caller(begin);
  EpochGate& gate = caller.gate();
  const bool waits_first = GENERATE(false, true);
  REQUIRE(gate.promise(5, {1, "new"}) == number_after(begin, 5));
  CHECK(!gate.promise(5, {2, "newer"}));
  for (int i = 0; i < 5; ++i) REQUIRE(caller.take());
  if (waits_first) CHECK_FALSE(caller.take());
  gate.commit(1, number_after(begin, 8));
  // As if the stop had been read before.
  CHECK(gate.pass(number_after(begin, 5)) == EpochGate::Passage::open);
  for (int i = 0; i < 3; ++i) REQUIRE(caller.take());
  CHECK(caller.version() == 0);
  CHECK_FALSE(gate.is_idle());
  REQUIRE(caller.take());
  CHECK(caller.version() == 1);
  CHECK(caller.blob() == "new");
  CHECK(gate.is_idle());
  CHECK(gate.counts().waited == (waits_first ? 1 : 0));
}

namespace {

// Ranks that make the same calls in step, as those of all-reduces, on one communicator.
class InStep {
 public:
  InStep(int ranks, std::vector<std::uint32_t> first)
      : world_(ranks, 2, 1, 0, {}, {latency_ns, 1'000, 1'000, 0}) {
    for (int rank = 0; rank < ranks; ++rank) {
      all_.push_back(rank);
      members_.push_back(std::make_unique<Member>(rank, first[at(rank)]));
    }
    for (const auto& member : members_) {
      world_.plane(member->rank).add(comm, all_, member->watcher);
      world_.at_ms(1, [this, one = member.get()] { go_on(*one); });
    }
  }

  static constexpr CommKey comm = 100;
  static constexpr double call_ms = 0.02;  // in a burst
  static constexpr double agreement_ms = 10;

  double now_ms() const { return static_cast<double>(world_.now_ns()) / 1e6; }
  void run_ms(double ms) { world_.run_until_ms(now_ms() + ms); }
  void call_each_ms(double ms) { pace_ms_ = ms; }
  bool propose() {
    const bool proposed = world_.plane(0).propose(comm, "new");
    world_.turn_soon(0);
    proposed_ms_ = now_ms();
    return proposed;
  }
  EpochGate::Counts counts(int rank) { return gate(rank).counts(); }
  EpochGate& gate(int rank) { return members_[at(rank)]->caller.gate(); }
  // How long after the proposal the last rank has it; -1: some rank does not.
  double adopted_ms() const { return missing_ == 0 ? adopted_ms_ - proposed_ms_ : -1; }
  double longest_wait_ms() const { return longest_wait_ms_; }

 private:
  static constexpr std::uint64_t latency_ns = 500'000;

  void go_on(Member& one) {
    const auto is_behind = [&](const auto& other) {
      return other->caller.taken() < one.caller.taken();
    };
    const bool held = std::ranges::any_of(members_, is_behind);
    const bool adopts = one.caller.version() == 0 && !held;
    if (!held) one.caller.take();
    if (adopts && one.caller.version() != 0) {
      adopted_ms_ = now_ms();
      --missing_;
    }
    double& since_ms = waits_since_ms_[at(one.rank)];
    if (one.caller.waits() && since_ms == 0) since_ms = now_ms();
    if (!one.caller.waits() && since_ms != 0) {
      longest_wait_ms_ = std::max(longest_wait_ms_, now_ms() - since_ms);
      since_ms = 0;
    }
    const bool looks_again = held || one.caller.waits();
    world_.at_ms(now_ms() + (looks_again ? call_ms / 2 : pace_ms_), [this, &one] { go_on(one); });
  }

  ControlWorld world_;
  std::vector<int> all_;
  std::vector<std::unique_ptr<Member>> members_;
  std::map<std::size_t, double> waits_since_ms_;
  double pace_ms_ = call_ms;
  double proposed_ms_ = 0;
  double adopted_ms_ = 0;
  double longest_wait_ms_ = 0;
  std::size_t missing_ = 4;
};

const std::vector<std::uint32_t> four_at_the_start{1, 1, 1, 1};

}  // namespace

// A few calls more at most, even if the next ones are slow.
TEST_CASE("parameters hold soon after a burst of calls", "[control]") {
  constexpr double slow_ms = 10;
  const double after_ms = GENERATE(-30.0, -3.0, -1.0, 0.0, 1.0, 20.0, 99.0, 150.0, 1000.0);
  InStep ranks(4, four_at_the_start);
  ranks.run_ms(500 + std::min(after_ms, 0.0));
  if (after_ms >= 0) {
    ranks.call_each_ms(slow_ms);
    ranks.run_ms(after_ms);
  }
  REQUIRE(ranks.propose());
  if (after_ms < 0) {
    ranks.run_ms(-after_ms);
    ranks.call_each_ms(slow_ms);
  }
  ranks.run_ms(2000);
  const double adopted_ms = ranks.adopted_ms();
  INFO(after_ms << " ms after the burst: " << adopted_ms << " ms");
  CHECK(adopted_ms >= 0);
  CHECK(adopted_ms < ranks.agreement_ms + 65 * slow_ms);
  if (after_ms >= 150) CHECK(adopted_ms < ranks.agreement_ms + 110);
}

TEST_CASE("no call waits longer than an agreement takes when calls become fast", "[control]") {
  const double slow_ms = GENERATE(1.0, 20.0, 1000.0);
  InStep ranks(4, four_at_the_start);
  ranks.call_each_ms(slow_ms);
  ranks.run_ms(3000);
  ranks.call_each_ms(ranks.call_ms);  // from 3001 ms on
  ranks.run_ms(GENERATE(0.0, 1.0, 300.0));
  REQUIRE(ranks.propose());
  ranks.run_ms(1500);
  CHECK(ranks.longest_wait_ms() > 0);
  CHECK(ranks.longest_wait_ms() < ranks.agreement_ms);
  CHECK(ranks.adopted_ms() >= 0);
  CHECK(ranks.adopted_ms() < ranks.agreement_ms + 2);
}

TEST_CASE("no call waits for news where few come in the time of an agreement", "[control]") {
  InStep ranks(4, four_at_the_start);
  const bool comes_up = GENERATE(false, true);
  ranks.call_each_ms(comes_up ? 100 : 0.25);
  ranks.run_ms(450);
  ranks.call_each_ms(0.25);  // from 501 ms on
  ranks.run_ms(comes_up ? GENERATE(80.0, 95.0) : GENERATE(51.0, 53.0, 140.0));
  REQUIRE(ranks.propose());
  ranks.run_ms(500);
  CHECK(ranks.longest_wait_ms() == 0);
  CHECK(ranks.adopted_ms() > 0);
  CHECK(ranks.adopted_ms() < 65 * 0.25 + 1);
}

TEST_CASE("a change that a rank refuses is cancelled by all", "[control]") {
  InStep ranks(4, four_at_the_start);
  ranks.call_each_ms(10'000);
  REQUIRE(ranks.gate(2).promise(5, {1000, "of an unknown proposal"}));
  ranks.run_ms(10);
  REQUIRE(ranks.propose());
  ranks.run_ms(100);
  CHECK(ranks.counts(2).refused == 1);
  for (const int rank : {0, 1, 3}) {
    CHECK(ranks.counts(rank).promised == 1);
    CHECK(ranks.counts(rank).cancelled == 1);
    CHECK(ranks.gate(rank).is_idle());
  }
}

TEST_CASE("a change holds from the latest of the promised calls", "[control]") {
  InStep ranks(4, {1, 5, 40, 3});
  ranks.call_each_ms(10'000);
  ranks.run_ms(10);
  REQUIRE(ranks.propose());
  ranks.run_ms(100);
  for (const int rank : {0, 1, 2, 3}) {
    CHECK(ranks.counts(rank).committed == 1);
    CHECK(ranks.gate(rank).stops(43));
  }
}

TEST_CASE("a change is cancelled where nobody can tell which call is the latest", "[control]") {
  InStep ranks(4, {1, 1, call_numbers / 2, 1});
  ranks.call_each_ms(10'000);
  ranks.run_ms(10);
  REQUIRE(ranks.propose());
  ranks.run_ms(100);
  for (const int rank : {0, 1, 2, 3}) CHECK(ranks.counts(rank).cancelled == 1);
}
