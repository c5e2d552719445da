// Short allreduces of two ranks, which a waiting thread makes without a coroutine: whatever the
// other rank does meanwhile, and whichever way it makes the same call.
#include <thread>

#include "everywhere.hpp"
#include "small_values.hpp"

using namespace ranks;

namespace {

constexpr std::array<std::size_t, 9> counts = {0, 1, 3, 6, 7, 64, 256, 1024, 1025};

// The rank's share of the sum in call `number`.
std::int32_t share_of(int rank, int number) { return (rank + 1) * 1000 + number; }

struct Call {
  std::vector<std::int32_t> send;
  std::vector<std::int32_t> recv;

  Call(const Rank& self, int number, std::size_t count)
      : send(count, share_of(self.rank, number)), recv(count) {}
  void check(int number) const {
    const std::int32_t sum = share_of(0, number) + share_of(1, number);
    for (const std::int32_t got : recv) ensure(got == sum, "a wrong sum: " + std::to_string(got));
  }
  pithResult_t run(pithComm_t comm) {
    return pithAllReduce(send.data(), recv.data(), send.size(), pithInt32, pithSum, comm, nullptr);
  }
};

void sum(const Rank& self, pithComm_t comm, int number, std::size_t count) {
  Call call(self, number, count);
  ok(call.run(comm));
  call.check(number);
}

// By the coroutine.
void sum_in_background(const Rank& self, pithComm_t comm, int number, std::size_t count) {
  Call call(self, number, count);
  pithRequest_t request = nullptr;
  ok(pithGroupStart());
  ok(call.run(comm));
  ok(pithGroupEndAsync(&request));
  ok(pithWait(request));
  call.check(number);
}

// One rank waits for each call, the other one makes some of them in the background.
void ways_mix(Rank& self) {
  const Comm comm(self.join());
  int number = 0;
  for (int round = 0; round < 40; ++round) {
    for (const std::size_t count : counts) {
      ++number;
      const bool in_background = number % 3 == self.rank;
      in_background ? sum_in_background(self, comm, number, count) : sum(self, comm, number, count);
    }
  }
}

// The peer's message is not there when it is first looked for.
void one_is_late(Rank& self) {
  const Comm comm(self.join());
  for (int number = 0; number < 30; ++number) {
    if (number % 2 == self.rank) sleep_s(0.002);
    sum(self, comm, number, counts[static_cast<std::size_t>(number) % counts.size()]);
  }
}

// What rank 0 sends first, rank 1 receives after the call: its message is stored, or lies before
// that of the call.
void others_come_before(Rank& self) {
  const Comm comm(self.join());
  for (int number = 0; number < 60; ++number) {
    std::vector<std::int32_t> ahead(1 + static_cast<std::size_t>(number) * 10, number);
    if (self.rank == 0) ok(pithSend(ahead.data(), ahead.size(), pithInt32, 1, comm, nullptr));
    sum(self, comm, number, 2);
    if (self.rank == 0) continue;
    std::vector<std::int32_t> got(ahead.size());
    ok(pithRecv(got.data(), got.size(), pithInt32, 0, comm, nullptr));
    ensure(got == ahead, "another message");
  }
}

void average(const Rank& self, pithComm_t comm, pithDataType_t type, unsigned low, unsigned high) {
  std::array<char, 16> send{};
  std::array<char, 16> recv{};
  for (std::size_t i = 0; i < 2; ++i) store(send.data(), i, type, self.rank == 0 ? low : high);
  ok(pithAllReduce(send.data(), recv.data(), 2, type, pithAvg, comm, nullptr));
  for (std::size_t i = 0; i < 2; ++i) {
    ensure(holds(recv.data(), i, type, (low + high) / 2), "a wrong mean");
  }
}

void averages(Rank& self) {
  const Comm comm(self.join());
  for (const pithDataType_t type : {pithFloat32, pithFloat16, pithBfloat16, pithFloat8e5m2}) {
    average(self, comm, type, 1, 3);
  }
  average(self, comm, pithFloat16, 40'000, 56'000);  // whose sum is none
}

void counts_differ(Rank& self) {
  pithComm_t comm = self.join();
  sum(self, comm, 0, 2);
  Call call(self, 1, self.rank == 0 ? 2 : 3);
  fails(call.run(comm), pithInvalidUsage, {"count 2 against 3"});
  self.meet();
  ok(pithCommAbort(comm));
}

// Both ranks leave: rank 0 by another thread, while it waits.
void aborted(Rank& self) {
  pithComm_t comm = self.join();
  sum(self, comm, 0, 2);
  self.meet();
  if (self.rank == 1) {
    self.meet();
    ok(pithCommAbort(comm));
    return;
  }
  std::thread other([&] {
    sleep_s(0.05);
    ok(pithCommAbort(comm));
  });
  Call call(self, 1, 2);
  const pithResult_t result = call.run(comm);
  other.join();
  self.meet();
  fails(result, pithRemoteError, {"rank 0"});
}

void one_dies(Rank& self) {
  pithComm_t comm = self.join();
  sum(self, comm, 0, 2);
  self.meet();
  if (self.rank == 1) {
    sleep_s(0.05);
    self.die();
  }
  Call call(self, 1, 2);
  fails(call.run(comm), pithRemoteError, {"rank 1"});
  ok(pithCommAbort(comm));
}

}  // namespace

TEST_CASE("a short pair mixes with groups", "[pairs]") { on_every_link(2, ways_mix); }
TEST_CASE("a short pair waits for a late rank", "[pairs]") { on_every_link(2, one_is_late); }
TEST_CASE("a short pair among other messages", "[pairs]") { on_every_link(2, others_come_before); }
TEST_CASE("averages of a short pair", "[pairs]") { on_every_link(2, averages); }
TEST_CASE("a short pair disagrees", "[pairs]") { on_every_link(2, counts_differ); }
TEST_CASE("a short pair is aborted", "[pairs]") { on_every_link(2, aborted); }
TEST_CASE("a rank of a short pair dies", "[pairs]") {
  for (Setup setup : between_processes()) {
    INFO(name_of(setup));
    setup.may_be_killed = true;
    CHECK(run(2, setup, one_dies) == "");
  }
}
