// A call captured on some ranks and eager on others: the root tells, and only where it must be so.
#include <string>
#include <vector>

#include "catch.hpp"
#include "control_world.hpp"
#include "core/call_number.hpp"

using namespace pith;
using namespace pith::test;

namespace {

constexpr CommKey comm = 7;
constexpr std::uint32_t captured_call = call_numbers + 1;

// All ranks stand still for long in the same call, the last one in a captured one.
struct Standstill {
  explicit Standstill(int ranks) : world(ranks, 2, 1), watchers(static_cast<std::size_t>(ranks)) {
    std::vector<int> members;
    for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
    for (int rank = 0; rank < ranks; ++rank) {
      RecordingWatcher& watcher = watchers[static_cast<std::size_t>(rank)];
      watcher.stall = Stall{{3, 55, "pithAllReduce of 10 float32, sum"}, 11};
      world.plane(rank).add(comm, members, watcher);
    }
    watchers.back().stall->call.number = captured_call;
  }
  std::size_t told() {
    world.run_until_ms(5'000);
    std::size_t all = 0;
    for (const RecordingWatcher& watcher : watchers) all += watcher.revoked.size();
    return all;
  }
  ControlWorld world;
  std::vector<RecordingWatcher> watchers;
};

}  // namespace

TEST_CASE("a call that is captured on some ranks only is an error on all") {
  Standstill stand(5);
  CHECK(stand.told() == 5);
  for (const RecordingWatcher& watcher : stand.watchers) {
    REQUIRE(watcher.revoked.size() == 1);
    const Error& error = watcher.revoked.front();
    CHECK(error.code() == Code::invalid_usage);
    CHECK(std::string(error.message()) ==
          "ranks disagree on a call of this communicator: rank 4 captured pithAllReduce of 10 "
          "float32, sum in a graph, rank 0, rank 1, rank 2, rank 3 did not, and none of them goes "
          "on; all ranks capture a call, or none does");
  }
}

TEST_CASE("ranks that may yet go on do not disagree on captures") {
  Standstill stand(5);
  SECTION("one is in no call") { stand.watchers[2].stall.reset(); }
  SECTION("one has moved lately") { stand.watchers[2].stall->seconds = 9; }
  SECTION("the captured one is another call") { stand.watchers[4].stall->call.digest = 56; }
  SECTION("one waits for messages of a pair") { stand.watchers[2].stall->call.number = 0; }
  SECTION("all are in captured ones") {
    for (RecordingWatcher& watcher : stand.watchers) watcher.stall->call.number = captured_call;
  }
  SECTION("one has gone on before the last one stands still") {
    stand.watchers[3].stall.reset();
    stand.world.at_ms(2'000, [&] { stand.watchers[2].stall.reset(); });
    stand.world.at_ms(4'000, [&] { stand.watchers[3].stall = stand.watchers[0].stall; });
  }
  CHECK(stand.told() == 0);
}
