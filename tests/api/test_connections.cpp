// Pairs of ranks that connect when the first message between them wants it.
#include <vector>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr int ranks_here = 11;  // distances 5 and 6 connect on demand

Setup on_demand(Way way = Way::processes) {
  Setup setup;
  setup.way = way;
  setup.transport = "tcp";
  setup.environment = {{"PITH_CONNECT_RANKS", "1"}};
  setup.limit_s = 60;
  return setup;
}

void swap_all(const Rank& self, pithComm_t comm, int size, int rank) {
  std::vector<int> out;
  for (int peer = 0; peer < size; ++peer) out.push_back(100 * rank + peer);
  std::vector<int> in(out.size());
  ok(pithAlltoAll(out.data(), in.data(), 1, pithInt32, comm, self.stream()));
  for (int peer = 0; peer < size; ++peer) {
    ensure(in[static_cast<std::size_t>(peer)] == 100 * peer + rank, "wrong values");
  }
}

}  // namespace

TEST_CASE("messages between ranks that are not connected yet", "[connections]") {
  const Way way = GENERATE(Way::processes, Way::threads);
  CHECK(run(ranks_here, on_demand(way), [](Rank& self) {
          const Comm comm(self.join());
          // Up, then down, between other pairs.
          int got = -1;
          if (self.rank == 1) ok(pithSend(&self.rank, 1, pithInt32, 6, comm, nullptr));
          if (self.rank == 6) ok(pithRecv(&got, 1, pithInt32, 1, comm, nullptr));
          if (self.rank == 9) ok(pithSend(&self.rank, 1, pithInt32, 4, comm, nullptr));
          if (self.rank == 4) ok(pithRecv(&got, 1, pithInt32, 9, comm, nullptr));
          ensure(got == (self.rank == 6 ? 1 : self.rank == 4 ? 9 : -1), "a wrong message");
          swap_all(self, comm, self.size, self.rank);
          pithComm_t part = nullptr;
          ok(pithCommSplit(comm, self.rank % 2, self.rank, &part, nullptr));
          const Comm half(part);
          swap_all(self, half, self.rank % 2 == 0 ? 6 : 5, self.rank / 2);
        }) == "");
}

TEST_CASE("a rank that dies before others have connected to it", "[connections]") {
  Setup setup = on_demand();
  setup.may_be_killed = true;
  CHECK(run_in_time(ranks_here, setup, [](Rank& self) {
          const Comm comm(self.join());
          self.meet();
          if (self.rank == 3) self.die();
          int value = 0;
          pithResult_t result = pithSuccess;
          // Neither is connected to rank 3.
          if (self.rank == 8) result = pithRecv(&value, 1, pithInt32, 3, comm, nullptr);
          if (self.rank == 9) result = pithSend(&value, 1, pithInt32, 3, comm, nullptr);
          if (self.rank != 8 && self.rank != 9) result = pithBarrier(comm, nullptr);
          self.in_time(self.since_death_of(3), 5, "the loss");
          fails(result, pithRemoteError, {"rank 3"});
        }) == "");
}
