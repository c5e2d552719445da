// Short collectives, which a waiting thread makes without a coroutine: whatever the other ranks do
// meanwhile, and whichever way they make the same call.
#include <thread>

#include "everywhere.hpp"
#include "small_values.hpp"

using namespace ranks;

namespace {

constexpr std::array<std::size_t, 9> counts = {0, 1, 3, 6, 7, 64, 256, 1024, 1025};

// Collectives in which each rank sends at most one message to each other rank.
enum class Kind { allreduce, allgather, reduce_scatter, alltoall, broadcast };
constexpr int kinds = 5;

// What a rank has for block `to` in call `number`.
std::int32_t share_of(int rank, int number, int to) {
  return (rank + 1) * 100'000 + number * 10 + to;
}

// Every third call is in place, if its kind can be.
struct Call {
  Kind kind;
  int rank;
  int ranks;
  int number;
  std::size_t count;
  std::vector<std::int32_t> send;
  std::vector<std::int32_t> recv;

  Call(const Rank& self, int its_number, std::size_t its_count, Kind its_kind = Kind::allreduce)
      : kind(its_kind),
        rank(self.rank),
        ranks(self.size),
        number(its_number),
        count(its_count),
        send(static_cast<std::size_t>(ranks) * count),
        recv(send.size()) {
    for (std::size_t i = 0; i < send.size(); ++i) {
      send[i] = share_of(rank, number, has_blocks() ? static_cast<int>(i / count) : 0);
    }
  }
  bool has_blocks() const { return kind == Kind::reduce_scatter || kind == Kind::alltoall; }
  bool is_in_place() const { return number % 3 == 0 && kind != Kind::alltoall; }
  int root() const { return number / 2 % ranks; }
  std::size_t own() const { return static_cast<std::size_t>(rank) * count; }

  // What `recv` holds in block `from`, if that is one of its blocks.
  std::int32_t expected(int from) const {
    const int to = has_blocks() ? rank : 0;
    switch (kind) {
      case Kind::allgather:
      case Kind::alltoall:
        return share_of(from, number, to);
      case Kind::broadcast:
        return share_of(root(), number, 0);
      default: {
        std::int32_t sum = 0;
        for (int one = 0; one < ranks; ++one) sum += share_of(one, number, to);
        return sum;
      }
    }
  }
  void check(const std::int32_t* got) const {
    const bool gathers = kind == Kind::allgather || kind == Kind::alltoall;
    for (std::size_t i = 0; i < (gathers ? recv.size() : count); ++i) {
      ensure(got[i] == expected(static_cast<int>(i / count)),
             "a wrong element: " + std::to_string(got[i]));
    }
  }
  const std::int32_t* run_and_find(pithComm_t comm, pithResult_t& result) {
    std::int32_t* to = recv.data();
    const std::int32_t* from = send.data();
    if (is_in_place() && kind == Kind::allgather) {
      std::copy_n(from, count, to + own());
      from = to + own();
    } else if (is_in_place()) {
      to = send.data() + (kind == Kind::reduce_scatter ? own() : 0);
    }
    result = make(from, to, comm);
    return to;
  }
  pithResult_t run(pithComm_t comm) {
    pithResult_t result = pithSuccess;
    run_and_find(comm, result);
    return result;
  }

 private:
  pithResult_t make(const void* from, void* to, pithComm_t comm) const {
    switch (kind) {
      case Kind::allgather:
        return pithAllGather(from, to, count, pithInt32, comm, nullptr);
      case Kind::reduce_scatter:
        return pithReduceScatter(from, to, count, pithInt32, pithSum, comm, nullptr);
      case Kind::alltoall:
        return pithAlltoAll(from, to, count, pithInt32, comm, nullptr);
      case Kind::broadcast:
        return pithBroadcast(from, to, count, pithInt32, root(), comm, nullptr);
      default:
        return pithAllReduce(from, to, count, pithInt32, pithSum, comm, nullptr);
    }
  }
};

void make(const Rank& self, pithComm_t comm, int number, std::size_t count,
          Kind kind = Kind::allreduce) {
  Call call(self, number, count, kind);
  pithResult_t result = pithSuccess;
  const std::int32_t* const got = call.run_and_find(comm, result);
  ok(result);
  call.check(got);
}

// By the coroutine.
void make_in_background(const Rank& self, pithComm_t comm, int number, std::size_t count,
                        Kind kind) {
  Call call(self, number, count, kind);
  pithRequest_t request = nullptr;
  pithResult_t result = pithSuccess;
  ok(pithGroupStart());
  const std::int32_t* const got = call.run_and_find(comm, result);
  ok(result);
  ok(pithGroupEndAsync(&request));
  ok(pithWait(request));
  call.check(got);
}

// Each rank makes some calls in the background, and waits in the others.
void ways_mix(Rank& self) {
  const Comm comm(self.join());
  int number = 0;
  for (int round = 0; round < 20; ++round) {
    for (const std::size_t count : counts) {
      for (int kind = 0; kind < kinds; ++kind) {
        const bool in_background = ++number % (2 * self.size) == self.rank;
        const auto make_it = in_background ? make_in_background : make;
        make_it(self, comm, number, count, static_cast<Kind>(kind));
      }
    }
  }
}

// A message is not there when it is first looked for.
void one_is_late(Rank& self) {
  const Comm comm(self.join());
  for (int number = 0; number < 50; ++number) {
    if (number % self.size == self.rank) sleep_s(0.002);
    make(self, comm, number, counts[static_cast<std::size_t>(number) % counts.size()],
         static_cast<Kind>(number / 2 % kinds));
  }
}

// What rank 0 sends first, rank 1 receives after the call: its message is stored, or lies before
// that of the call.
void others_come_before(Rank& self) {
  const Comm comm(self.join());
  for (int number = 0; number < 60; ++number) {
    std::vector<std::int32_t> ahead(1 + static_cast<std::size_t>(number) * 10, number);
    if (self.rank == 0) ok(pithSend(ahead.data(), ahead.size(), pithInt32, 1, comm, nullptr));
    make(self, comm, number, 2, static_cast<Kind>(number % kinds));
    if (self.rank != 1) continue;
    std::vector<std::int32_t> got(ahead.size());
    ok(pithRecv(got.data(), got.size(), pithInt32, 0, comm, nullptr));
    ensure(got == ahead, "another message");
  }
}

void average(const Rank& self, pithComm_t comm, pithDataType_t type, unsigned low, unsigned high) {
  std::array<char, 16> send{};
  std::array<char, 16> recv{};
  for (std::size_t i = 0; i < 2; ++i) store(send.data(), i, type, self.rank % 2 == 0 ? low : high);
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
  make(self, comm, 0, 2);
  Call call(self, 1, self.rank == 0 ? 2 : 3);
  fails(call.run(comm), pithInvalidUsage, {"count 2 against 3"});
  self.meet();
  ok(pithCommAbort(comm));
}

// All ranks leave: rank 0 by another thread, while it waits.
void aborted(Rank& self) {
  pithComm_t comm = self.join();
  make(self, comm, 0, 2);
  self.meet();
  if (self.rank != 0) {
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
  make(self, comm, 0, 2);
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

TEST_CASE("a short pair mixes with groups", "[short]") { on_every_link(2, ways_mix); }
TEST_CASE("short calls mix with groups", "[short]") { everywhere(3, 4, ways_mix); }
TEST_CASE("short calls by algorithms of one round", "[short]") {
  for (Setup setup : every_link()) {
    INFO(name_of(setup));
    setup.environment.emplace_back("PITH_ALGO",
                                   "allreduce:direct,allgather:direct,reduce_scatter:direct");
    CHECK(run(3, setup, ways_mix) == "");
    CHECK(run(2, setup, others_come_before) == "");
  }
}
TEST_CASE("a short pair waits for a late rank", "[short]") { on_every_link(2, one_is_late); }
TEST_CASE("short calls wait for a late rank", "[short]") { everywhere(3, 4, one_is_late); }
TEST_CASE("a short pair among other messages", "[short]") { on_every_link(2, others_come_before); }
TEST_CASE("short calls among other messages", "[short]") { everywhere(4, 4, others_come_before); }
TEST_CASE("averages of a short pair", "[short]") { on_every_link(2, averages); }
TEST_CASE("averages of short calls", "[short]") { everywhere(4, 4, averages); }
TEST_CASE("a short pair disagrees", "[short]") { on_every_link(2, counts_differ); }
TEST_CASE("short calls disagree", "[short]") { everywhere(3, 3, counts_differ); }
TEST_CASE("a short pair is aborted", "[short]") { on_every_link(2, aborted); }
TEST_CASE("a short call is aborted", "[short]") { everywhere(4, 4, aborted); }
TEST_CASE("a rank of a short call dies", "[short]") {
  for (Setup setup : between_processes()) {
    for (const int ranks : {2, 3}) {
      INFO(name_of(setup) << ", " << ranks << " ranks");
      setup.may_be_killed = true;
      CHECK(run(ranks, setup, one_dies) == "");
    }
  }
}
