// Which algorithm makes a call, as every rank finds by counting; and that ranks which learn agree.
#include "comm/call_planner.hpp"

#include <pith/pith.h>
#include <cstdlib>

#include <chrono>
#include <thread>
#include <vector>

#include "api/comm_handle.hpp"
#include "collectives/registry.hpp"
#include "model/call_time.hpp"
#include "tests/catch.hpp"
#include "tests/variable.hpp"

using namespace pith;

namespace {

Settings learning(bool learns) {
  Settings settings;
  settings.learn = learns;
  return settings;
}

CollectiveArgs sum_of(std::size_t count) {
  CollectiveArgs args;
  args.count = count;
  return args;
}

// How many of `calls` are made by another algorithm than the model's.
int tried(CallPlanner& planner, const Model& model, std::size_t count, int calls) {
  int others = 0;
  for (int i = 0; i < calls; ++i) {
    CollectiveArgs args = sum_of(count);
    planner.plan(args);
    others += &model.algorithm(args) != &model.algorithm(Collective::allreduce, 4 * count);
  }
  return others;
}

constexpr int run = short_calls.calls;
// One run in so many calls is a rival's.
constexpr int turn = 8 * run;

// Runs of calls with `count` floats that are made by rivals early on, without an agreement.
int early_turns(const Model& model, std::size_t count) {
  const Choices start = model.start();
  return 5 * start.at(Collective::allreduce, SizeClass(4 * count)).rival_count;
}

}  // namespace

TEST_CASE("rivals are tried from some calls on, a few times each", "[planner]") {
  const Model model(learning(true), 4);
  CallPlanner planner(model);
  planner.begin();
  const int early = early_turns(model, 1000);
  REQUIRE(early > 0);
  CHECK(tried(planner, model, 1000, turn) == 0);
  CHECK(tried(planner, model, 1000, turn) == run);
  CHECK(tried(planner, model, 1000, turn * (early - 1)) == run * (early - 1));
  CHECK(tried(planner, model, 1000, 3200) == 0);
  CHECK(tried(planner, model, 100'000, 32) == 0);  // other sizes count on their own
  CHECK(tried(planner, model, 100'000, 32) == long_calls.calls);
}

TEST_CASE("ranks that make the same calls plan alike", "[planner]") {
  const Model model(learning(true), 4);
  CallPlanner first(model);
  CallPlanner second(model);
  first.begin();
  second.begin();
  for (int i = 0; i < 2000; ++i) {
    CollectiveArgs args = sum_of(std::size_t{1} << (i * 7 % 20));
    CollectiveArgs same = args;
    first.plan(args);
    second.plan(same);
    REQUIRE(args.plan.algorithm == same.plan.algorithm);
    REQUIRE(args.plan.is_timed == same.plan.is_timed);
  }
}

TEST_CASE("calls of rivals are timed, and as many of the choice", "[planner]") {
  const Model model(learning(true), 4);
  CallPlanner planner(model);
  planner.begin();
  int rivals = 0;
  int timed = 0;
  for (int i = 0; i < turn + turn * early_turns(model, 1000); ++i) {
    CollectiveArgs args = sum_of(1000);
    planner.plan(args);
    const bool is_rival = &model.algorithm(args) != &model.algorithm(Collective::allreduce, 4000);
    if (is_rival) CHECK(args.plan.is_timed);
    rivals += is_rival;
    timed += args.plan.is_timed;
  }
  CHECK(rivals == run * early_turns(model, 1000));
  CHECK(timed == 2 * rivals + run);
}

TEST_CASE("the slowest rank's time is told where others end early, and no link is far",
          "[planner]") {
  const auto told = [](const Model& model, Collective collective, int first, int calls) {
    CallPlanner planner(model);
    planner.begin();
    int found = 0;
    for (int i = 0; i < first + calls; ++i) {
      CollectiveArgs args = sum_of(100'000);
      args.collective = collective;
      planner.plan(args);
      CHECK(args.plan.slowest == nullptr);
      if (args.plan.is_told) CHECK(args.plan.is_timed);
      found += i >= first && args.plan.is_told;
    }
    return found;
  };
  Model sharing(learning(true), 4);
  sharing.set_views(true);  // else long broadcasts have no rival
  const int early =
      8 * (4 + 5 * sharing.start().at(Collective::broadcast, SizeClass(400'000)).rival_count);
  CHECK(told(sharing, Collective::broadcast, 0, early) > early / 8);
  Model model(learning(true), 4);
  CHECK(told(model, Collective::broadcast, 1024, 5120) == 20);
  for (const Collective other : {Collective::allreduce, Collective::reduce, Collective::gather}) {
    CHECK(told(model, other, 0, 1000) == 0);
  }
  model.set_round_trip(10e-3);
  CHECK(told(model, Collective::broadcast, 0, 1000) == 0);
}

TEST_CASE("a run of short broadcasts is told once, at its end", "[planner]") {
  const Model model(learning(true), 4);
  CallPlanner planner(model);
  planner.begin();
  int place = 0;
  int runs = 0;
  for (int i = 0; i < 10'000; ++i) {
    CollectiveArgs args = sum_of(1000);
    args.collective = Collective::broadcast;
    planner.plan(args);
    CHECK(args.plan.is_told == args.plan.is_timed);
    if (!args.plan.run) {
      REQUIRE(!args.plan.is_told);
      REQUIRE(place == 0);
      continue;
    }
    REQUIRE(args.plan.place == place);
    CHECK(args.plan.is_told == (place == run - 1));
    place = (place + 1) % run;
    runs += args.plan.is_told;
  }
  CHECK(runs > 10'000 / (16 * run));
  CHECK(runs < 10'000 / (4 * run));
}

TEST_CASE("rivals do not come in a rhythm that calls may have", "[planner]") {
  const Model model(learning(true), 4);
  for (const int period : {2, 3, 4, 5, 8}) {
    CallPlanner planner(model);
    planner.begin();
    Choices wanted = model.start();
    wanted.at(Collective::allreduce, SizeClass(4000)).trials = Choices::Trials::seldom;
    planner.adopt(wanted.save(model.start()));
    std::vector<int> rivals(static_cast<std::size_t>(period));
    for (int i = 0; i < 1024; ++i) {
      CollectiveArgs args = sum_of(1000);
      planner.plan(args);
      const bool is_rival = args.plan.algorithm != &model.algorithm(Collective::allreduce, 4000);
      rivals[static_cast<std::size_t>(i % period)] += is_rival;
    }
    for (const int one : rivals) CHECK(one > 60 / period);
  }
}

TEST_CASE("agreed choices hold, and what is no choice changes nothing", "[planner]") {
  const Model model(learning(true), 4);
  CallPlanner planner(model);
  planner.begin();
  Choices wanted = model.start();
  Choices::Cell& cell = wanted.at(Collective::allreduce, SizeClass(4000));
  cell = {};
  cell.chosen = Choices::plan_of(*find_algorithm(Collective::allreduce, "double_tree"));
  planner.adopt(wanted.save(model.start()));
  planner.adopt("no choices");
  CHECK(planner.chosen(Collective::allreduce, 4000).algorithm->name == "double_tree");
  CHECK(tried(planner, model, 1000, 1000) == 1000);
  CHECK(tried(planner, model, 100'000, 32) == 0);
}

TEST_CASE("rivals that are agreed to be new are tried at any count", "[planner]") {
  const Model model(learning(true), 4);
  CallPlanner planner(model);
  planner.begin();
  tried(planner, model, 1000, 10'000);
  Choices wanted = model.start();
  wanted.at(Collective::allreduce, SizeClass(4000)).trials = Choices::Trials::seldom;
  planner.adopt(wanted.save(model.start()));
  CHECK(tried(planner, model, 1000, 10 * turn) == 10 * run);
  const int most = 24 * model.start().at(Collective::allreduce, SizeClass(4000)).rival_count;
  CHECK(tried(planner, model, 1000, 300 * turn) == (most - 10) * run);  // nobody has judged them
}

TEST_CASE("without learning every call is made by the model's choice", "[planner]") {
  const Model model(learning(false), 4);
  CallPlanner planner(model);
  planner.begin();
  CHECK(tried(planner, model, 1000, 1000) == 0);
  CollectiveArgs args = sum_of(1 << 20);
  planner.plan(args);
  CHECK_FALSE(args.plan.is_timed);
}

// Real times decide here, so only that something is learnt is sure, and that no call is wrong.
TEST_CASE("ranks that learn agree on choices while they call", "[planner]") {
  using Clock = std::chrono::steady_clock;
  const test::Variable learn("PITH_LEARN", "1");
  constexpr int ranks = 3;
  std::vector<pithComm_t> comms(ranks);
  REQUIRE(pithCommInitAll(comms.data(), ranks, nullptr) == pithSuccess);
  std::vector<int> wrong(ranks, 0);
  std::vector<std::uint32_t> epochs(ranks, 0);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto at = static_cast<std::size_t>(r);
      const pithComm_t comm = comms[at];
      const CallNumbers& numbers = comm->communicator->calls().numbers();
      std::vector<std::int64_t> in(1000, r);
      std::vector<std::int64_t> out(1000);
      const auto until = Clock::now() + std::chrono::seconds(30);
      // All ranks leave after the same call: when the epoch has changed, or by rank 0's clock.
      for (std::int64_t goes_on = 1; goes_on != 0;) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{1000}}) {
          wrong[at] += pithAllReduce(in.data(), out.data(), count, pithInt64, pithSum, comm,
                                     nullptr) != pithSuccess;
          wrong[at] += out[0] != 3 || out[count - 1] != 3;
        }
        goes_on = numbers.epoch() == 0 && Clock::now() < until;
        wrong[at] +=
            pithBroadcast(&goes_on, &goes_on, 1, pithInt64, 0, comm, nullptr) != pithSuccess;
      }
      epochs[at] = numbers.epoch();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < ranks; ++r) {
    CHECK(wrong[static_cast<std::size_t>(r)] == 0);
    CHECK(epochs[static_cast<std::size_t>(r)] == epochs[0]);
  }
  CHECK(epochs[0] > 0);
  for (const pithComm_t comm : comms) pithCommDestroy(comm);
}
