// That a rank is told how long the slowest of all took. Times are real, so only bounds are checked.
#include "collectives/slowest_rank.hpp"

#include <cmath>
#include <vector>

#include "collectives/told_run.hpp"
#include "core/clock.hpp"
#include "tests/catch.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

namespace {

constexpr double slow_s = 2e-3;
constexpr CallPlan told_alone = {.is_told = true};

// The rank that is args.root here works for some time; it needs no message.
Task<Error> work(Call& call, CollectiveArgs args) {
  const std::uint64_t begun_ns = monotonic_ns();
  while (call.rank() == args.root && monotonic_ns() - begun_ns < std::uint64_t(slow_s * 1e9)) {
  }
  co_return Error();
}

Task<Error> fail(Call& call, CollectiveArgs) { co_return call.fail(Error(Code::internal, "")); }

constexpr Algorithm working{"work", Collective::broadcast, work, nullptr};
constexpr Algorithm failing{"fail", Collective::broadcast, fail, nullptr};

class Ranks {
 public:
  explicit Ranks(int ranks) : world_(config_of(ranks)), size_(ranks), told_(counted(ranks)) {
    runs_.resize(counted(ranks));
    for (SlowestTime& one : told_) one.seconds = -1;
  }

  void call(int slow, int to, const Algorithm& algorithm, const CallPlan& plan) {
    world_.new_calls();
    std::vector<Task<Error>> tasks;
    for (int rank = 0; rank < size_; ++rank) {
      CollectiveArgs args;
      args.root = slow;
      args.count = 100;
      args.plan = plan;
      args.plan.slowest = &told_[counted(rank)];
      if (plan.run) args.plan.run = &runs_[counted(rank)];
      tasks.push_back(run_and_tell(world_.call(rank), args, algorithm, to));
    }
    world_.start(std::move(tasks));
    while (world_.sim().step()) {
    }
    for (const Error& error : world_.finish()) CHECK(!error == (&algorithm == &working));
  }
  // Calls of a run from a place on; the slow rank is one of none where it is -1.
  void run(std::size_t from, const std::vector<int>& slow) {
    for (std::size_t i = 0; i < slow.size(); ++i) {
      CallPlan plan;
      plan.is_told = i + 1 == slow.size();
      plan.place = static_cast<std::uint8_t>(from + i);
      plan.run = &runs_[0];
      call(slow[i], 0, working, plan);
    }
  }
  const SlowestTime& told(int rank) const { return told_[counted(rank)]; }

 private:
  static SimConfig config_of(int ranks) {
    SimConfig config;
    config.ranks = ranks;
    return config;
  }
  static std::size_t counted(int number) { return static_cast<std::size_t>(number); }

  World world_;
  const int size_;
  std::vector<SlowestTime> told_;  // what each rank is told
  std::vector<ToldRun> runs_;
};

}  // namespace

TEST_CASE("a rank is told the time of the slowest", "[collectives][slowest]") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int to : {0, ranks / 2}) {
      Ranks all(ranks);
      all.call(ranks - 1, to, working, told_alone);
      CHECK(all.told(to).seconds >= slow_s);
      CHECK(all.told(to).bytes == 400);
    }
  }
}

TEST_CASE("of a run, one call's time is told at its end", "[collectives][slowest]") {
  Ranks all(3);
  all.run(0, {2, 2, 2, 2});
  CHECK(all.told(0).seconds >= slow_s);
  CHECK(all.told(0).bytes == 400);
  all.run(0, {1, 1, 1});
  CHECK(all.told(0).seconds >= slow_s);
}

TEST_CASE("of a run, the first call's time does not count", "[collectives][slowest]") {
  ToldRun run;
  CHECK(std::isinf(run.mean().seconds));
  CallPlan plan;
  for (const double seconds : {5.0, 1.0, 3.0}) {
    run.add(plan, 400, seconds);
    ++plan.place;
  }
  CHECK(run.mean().seconds == 2);
  CHECK(run.mean().bytes == 400);
}

TEST_CASE("a run that was not begun, or changes its algorithm, tells no time",
          "[collectives][slowest]") {
  Ranks all(2);
  all.run(3, {1, 1, 1, 1});
  CHECK(std::isinf(all.told(0).seconds));

  ToldRun run;
  CallPlan plan{&working};
  run.add(plan, 400, 1);
  plan.algorithm = &failing;
  plan.place = 1;
  run.add(plan, 400, 1);
  CHECK(std::isinf(run.mean().seconds));
}

TEST_CASE("a call that fails tells nothing", "[collectives][slowest]") {
  Ranks all(3);
  all.call(0, 0, failing, told_alone);
  for (int rank = 0; rank < 3; ++rank) CHECK(all.told(rank).seconds == -1);
}

}  // namespace pith::test
