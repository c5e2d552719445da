// That a rank is told how long the slowest of all took. Times are real, so only bounds are checked.
#include "collectives/slowest_rank.hpp"

#include <vector>

#include "core/clock.hpp"
#include "tests/catch.hpp"
#include "tests/sim/world.hpp"

namespace pith::test {

namespace {

constexpr double slow_s = 2e-3;

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

// What each rank is told.
std::vector<double> told(int ranks, int slow, int to, const Algorithm& algorithm) {
  SimConfig config;
  config.ranks = ranks;
  World world(config);
  std::vector<double> seconds(static_cast<std::size_t>(ranks), -1);
  world.new_calls();
  std::vector<Task<Error>> tasks;
  for (int rank = 0; rank < ranks; ++rank) {
    CollectiveArgs args;
    args.root = slow;
    args.plan.slowest_s = &seconds[static_cast<std::size_t>(rank)];
    tasks.push_back(run_and_tell(world.call(rank), args, algorithm, to));
  }
  world.start(std::move(tasks));
  while (world.sim().step()) {
  }
  for (const Error& error : world.finish()) CHECK(!error == (&algorithm == &working));
  return seconds;
}

}  // namespace

TEST_CASE("a rank is told the time of the slowest", "[collectives][slowest]") {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const int to : {0, ranks / 2}) {
      const std::vector<double> seconds = told(ranks, ranks - 1, to, working);
      CHECK(seconds[static_cast<std::size_t>(to)] >= slow_s);
    }
  }
}

TEST_CASE("a call that fails tells nothing", "[collectives][slowest]") {
  for (const double seconds : told(3, 0, 0, failing)) CHECK(seconds == -1);
}

}  // namespace pith::test
