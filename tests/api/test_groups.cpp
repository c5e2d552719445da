// Groups: nesting, several communicators, set-up inside a group, groups in the background.
#include <memory>
#include <numeric>
#include <thread>

#include "catch.hpp"
#include "everywhere.hpp"

using namespace ranks;

namespace {

pithResult_t sum_into(const std::vector<std::int64_t>& send, std::vector<std::int64_t>& recv,
                      pithComm_t comm) {
  return pithAllReduce(send.data(), recv.data(), send.size(), pithInt64, pithSum, comm, nullptr);
}

// One reduction with a result that only this number and size give.
struct Reduction {
  Reduction(Rank& self, std::size_t count, int number) : send(count), recv(count, -1) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::int64_t>(i) + number;
      send[i] = at * (self.rank + 1);
    }
    const auto n = static_cast<std::int64_t>(self.size);
    factor = n * (n + 1) / 2;
    first = number;
  }
  bool right() const {
    for (std::size_t i = 0; i < recv.size(); ++i) {
      if (recv[i] != (static_cast<std::int64_t>(i) + first) * factor) return false;
    }
    return true;
  }
  std::vector<std::int64_t> send;
  std::vector<std::int64_t> recv;
  std::int64_t factor = 0;
  std::int64_t first = 0;
};

void nested(Rank& self) {
  const Comm comm(self.join());
  std::vector<Reduction> calls;
  for (int i = 0; i < 20; ++i) calls.emplace_back(self, std::size_t{1} << (i % 15), i);
  ok(pithGroupStart());
  ok(pithGroupStart());
  for (int i = 0; i < 10; ++i) ok(sum_into(calls[i].send, calls[i].recv, comm));
  ok(pithGroupEnd());
  ensure(calls[0].recv[0] == -1, "an inner end started the calls");
  for (int i = 10; i < 20; ++i) ok(sum_into(calls[i].send, calls[i].recv, comm));
  ok(pithBarrier(comm, nullptr));
  ok(pithGroupEnd());
  for (const Reduction& call : calls) ensure(call.right(), "a wrong sum");
}

void empty_groups(Rank& self) {
  const Comm comm(self.join());
  ok(pithGroupStart());
  ok(pithGroupEnd());
  pithRequest_t request = nullptr;
  ok(pithGroupStart());
  ok(pithGroupEndAsync(&request));
  ok(pithWait(request));
  ok(pithBarrier(comm, nullptr));
}

// Calls on different communicators come in a different order on different ranks.
// Threads make none out of nothing, but by splits.
void several_communicators(Rank& self, Way way) {
  constexpr int comms = 3;
  std::vector<pithComm_t> made(comms, nullptr);
  made[0] = self.join();
  for (int c = 1; c < comms; ++c) {
    ok(way == Way::all ? pithCommSplit(made[0], 0, 0, &made[c], nullptr)
                       : pithCommInitRank(&made[c], self.size, self.id(c), self.rank));
  }
  for (int turn = 0; turn < 10; ++turn) {
    std::vector<Reduction> calls;
    for (int c = 0; c < comms; ++c) calls.emplace_back(self, 3'000 * turn + 10, turn + c);
    ok(pithGroupStart());
    for (int i = 0; i < comms; ++i) {
      const int c = (i + self.rank) % comms;
      ok(sum_into(calls[c].send, calls[c].recv, made[c]));
    }
    ok(pithGroupEnd());
    for (const Reduction& call : calls) ensure(call.right(), "a wrong sum");
  }
  for (const pithComm_t comm : made) ok(pithCommDestroy(comm));
}

// Both communicators are made in one group, in opposite order on odd ranks.
void init_in_a_group(Rank& self) {
  pithComm_t made[2] = {};
  const pithUniqueId ids[2] = {self.id(0), self.id(1)};
  ok(pithGroupStart());
  for (int i = 0; i < 2; ++i) {
    const int c = (i + self.rank) % 2;
    ok(pithCommInitRank(&made[c], self.size, ids[c], self.rank));
    ensure(made[c] != nullptr, "no handle before the group has ended");
    int size = 0;
    fails(pithCommCount(made[c], &size), pithInvalidArgument, {"still being made"});
  }
  const pithComm_t before[2] = {made[0], made[1]};
  ok(pithGroupEnd());
  ensure(made[0] == before[0] && made[1] == before[1], "another handle after the group");
  for (const pithComm_t comm : made) {
    Reduction call(self, 100, 3);
    ok(sum_into(call.send, call.recv, comm));
    ensure(call.right(), "a wrong sum");
    ok(pithCommDestroy(comm));
  }
}

// One thread is all ranks.
void one_thread(Rank&) {
  for (const int size : {1, 2, 4}) {
    std::vector<pithComm_t> comms(static_cast<std::size_t>(size), nullptr);
    ok(pithCommInitAll(comms.data(), size, nullptr));
    for (const std::size_t count : {1u, 1000u, 200'000u}) {
      std::vector<std::int64_t> send(count, 3);
      std::vector<std::vector<std::int64_t>> recv(comms.size(), std::vector<std::int64_t>(count));
      for (int turn = 0; turn < 3; ++turn) {
        ok(pithGroupStart());
        for (std::size_t r = 0; r < comms.size(); ++r) ok(sum_into(send, recv[r], comms[r]));
        for (const pithComm_t comm : comms) ok(pithBarrier(comm, nullptr));
        if (turn == 2) {
          pithRequest_t request = nullptr;
          ok(pithGroupEndAsync(&request));
          ok(pithWait(request));
        } else {
          ok(pithGroupEnd());
        }
        for (const auto& sums : recv) {
          ensure(sums == std::vector<std::int64_t>(count, 3 * size), "a wrong sum");
        }
      }
    }
    for (const pithComm_t comm : comms) ok(pithCommDestroy(comm));
  }
}

void in_flight(Rank& self) {
  const Comm comm(self.join());
  constexpr int groups = 8;
  for (int turn = 0; turn < 5; ++turn) {
    std::vector<Reduction> calls;
    for (int i = 0; i < groups; ++i) {
      calls.emplace_back(self, i % 2 ? 50'000 : 10, i + turn);
    }
    std::vector<pithRequest_t> requests(groups, nullptr);
    for (int i = 0; i < groups; ++i) {
      ok(pithGroupStart());
      ok(sum_into(calls[i].send, calls[i].recv, comm));
      ok(pithGroupEndAsync(&requests[i]));
      ensure(requests[i] != nullptr, "no request");
    }
    Reduction blocking(self, 500, 77);
    ok(sum_into(blocking.send, blocking.recv, comm));
    ensure(blocking.right(), "a wrong sum of the blocking call");
    for (int i = groups; i-- > 0;) {
      if (i % 2 != 0) {
        ok(pithWait(requests[i]));
        continue;
      }
      int done = 0;
      wait_until([&] {
        ok(pithTest(requests[i], &done));
        return done == 1;
      });
    }
    for (const Reduction& call : calls) ensure(call.right(), "a wrong sum");
  }
}

// The caller makes no call that works on a collective (pithTest only looks): the library's own
// thread must do it all.
void progresses_alone(Rank& self) {
  const Comm comm(self.join());
  for (const std::size_t count : {1u, 100'000u}) {
    Reduction call(self, count, 5);
    pithRequest_t request = nullptr;
    ok(pithGroupStart());
    ok(sum_into(call.send, call.recv, comm));
    ok(pithGroupEndAsync(&request));
    sleep_s(0.05);
    self.meet();
    int done = 0;
    wait_until([&] {
      ok(pithTest(request, &done));
      return done == 1;
    });
    ensure(call.right(), "a wrong sum");
  }
}

// Requests go from thread to thread, while the first one begins others, of other lengths.
void ends_on_another_thread(Rank& self) {
  const Comm comm(self.join());
  for (int turn = 0; turn < 30; ++turn) {
    std::vector<Reduction> calls;
    for (int i = 0; i < 3 + turn % 4; ++i) calls.emplace_back(self, 100u << (i % 3), i + turn);
    std::array<pithRequest_t, 2> requests{};
    std::array<pithResult_t, 2> results{};
    std::vector<std::thread> threads;
    for (std::size_t k = 0; k < requests.size(); ++k) {
      ok(pithGroupStart());
      for (std::size_t i = k; i < calls.size(); i += 2) {
        ok(sum_into(calls[i].send, calls[i].recv, comm));
      }
      ok(pithGroupEndAsync(&requests[k]));
      threads.emplace_back(
          [&results, k, request = requests[k]] { results[k] = pithWait(request); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const pithResult_t result : results) ensure(result == pithSuccess, "a group failed");
    for (const Reduction& call : calls) ensure(call.right(), "a wrong sum");
  }
}

// A refused call is the group's result, nothing of the group runs, and the next group is well.
void errors_in_groups(Rank& self) {
  const Comm comm(self.join());
  const auto bad_type = static_cast<pithDataType_t>(wild_types.back());
  std::int64_t one = 1;
  std::int64_t sum = -1;
  ok(pithGroupStart());
  ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, comm, nullptr));
  fails(pithAllReduce(&one, &sum, 1, bad_type, pithSum, comm, nullptr), pithInvalidArgument,
        {"pithAllReduce", "type is", "expected 0 to 13"});
  fails(pithGroupEnd(), pithInvalidArgument, {"type is"});
  ensure(sum == -1, "a refused group has run");

  pithRequest_t request = nullptr;
  ok(pithGroupStart());
  fails(pithBroadcast(&one, &sum, 1, pithInt64, 77, comm, nullptr), pithInvalidArgument, {"root"});
  fails(pithGroupEndAsync(&request), pithInvalidArgument, {"root", "77"});
  ensure(request == nullptr, "a refused group left a request");

  ok(pithGroupStart());
  ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, comm, nullptr));
  ok(pithGroupEnd());
  ensure(sum == self.size, "a wrong sum after a refused group");
}

void wrong_ends(Rank& self) {
  pithRequest_t request = nullptr;
  fails(pithGroupEnd(), pithInvalidUsage, {"pithGroupEnd", "pithGroupStart"});
  fails(pithGroupEndAsync(&request), pithInvalidUsage,
        {"pithGroupEndAsync without pithGroupStart"});
  ok(pithGroupStart());
  fails(pithGroupEndAsync(nullptr), pithInvalidArgument, {"request is NULL"});
  ok(pithGroupStart());
  fails(pithGroupEndAsync(&request), pithInvalidUsage, {"outermost"});
  ok(pithGroupEnd());
  ok(pithGroupEnd());
  fails(pithGroupEnd(), pithInvalidUsage, {"pithGroupStart"});
  fails(pithWait(nullptr), pithInvalidArgument, {"request is NULL"});
  int done = 0;
  fails(pithTest(nullptr, &done), pithInvalidArgument, {"request is NULL"});

  // A set-up cannot run in the background.
  pithComm_t comm = nullptr;
  const pithUniqueId id = self.id();
  ok(pithGroupStart());
  ok(pithCommInitRank(&comm, 1, id, 0));
  fails(pithGroupEndAsync(&request), pithInvalidUsage, {"pithGroupEnd"});
  ensure(comm == nullptr, "a communicator came of a refused group");
}

// Finalize waits for what is in flight.
void finalize_waits(Rank& self) {
  const Comm comm(self.join());
  Reduction call(self, 200'000, 9);
  pithRequest_t request = nullptr;
  ok(pithGroupStart());
  ok(sum_into(call.send, call.recv, comm));
  ok(pithGroupEndAsync(&request));
  ok(pithCommFinalize(comm));
  ensure(call.right(), "finalized before the call in flight had ended");
  ok(pithWait(request));
}

// A group that never ends would lose the calls of a communicator whose handle goes: neither
// destroy nor finalize does that, and the group's end runs them.
void not_before_its_calls(Rank& self) {
  pithComm_t comm = self.join();
  pithComm_t child = nullptr;
  pithComm_t other = nullptr;
  ok(pithCommSplit(comm, 0, 0, &other, nullptr));
  Reduction call(self, 1000, 4);
  int in = -1;
  const float gradient = 1;
  float sum = 0;
  pithCompressor_t all = nullptr;
  ok(pithCompressorCreate(&all, "topk:density=1"));
  const int next = (self.rank + 1) % self.size;
  const int before = (self.rank + self.size - 1) % self.size;
  const std::function<void()> calls[] = {
      [&] { ok(sum_into(call.send, call.recv, comm)); },
      [&] {
        ok(pithSend(&self.rank, 1, pithInt32, next, comm, nullptr));
        ok(pithRecv(&in, 1, pithInt32, before, comm, nullptr));
      },
      [&] {
        ok(pithAllReduceCompressed(&gradient, &sum, 1, pithFloat32, pithSum, all, comm, nullptr));
      },
      [&] { ok(pithCommSplit(comm, 0, 0, &child, nullptr)); }};
  for (const auto& add : calls) {
    ok(pithGroupStart());
    ok(pithGroupStart());
    add();
    ok(pithGroupEnd());
    fails(pithCommDestroy(comm), pithInvalidUsage,
          {"pithCommDestroy", "calls in the group that this thread has open", "pithGroupEnd"});
    fails(pithCommFinalize(comm), pithInvalidUsage, {"pithCommFinalize", "calls in the group"});
    ok(pithCommDestroy(std::exchange(other, nullptr)));  // which has none
    ok(pithGroupEnd());
  }
  ensure(call.right() && in == before && sum == static_cast<float>(self.size) && child != nullptr,
         "the group has not run its calls");
  ok(pithCompressorDestroy(all));
  ok(pithCommDestroy(child));
  ok(pithCommFinalize(comm));
  ok(pithGroupStart());
  ok(pithCommDestroy(comm));
  ok(pithGroupEnd());
}

// The other ranks of the calls may not be in the set-up.
void calls_beside_a_failure(Rank& self) {
  const Comm comm(self.join());
  pithComm_t revoked = nullptr;
  ok(pithCommSplit(comm, 0, 0, &revoked, nullptr));
  float one = 1;
  float sum = 0;
  const std::size_t count = self.rank == 0 ? 0 : 1;
  std::array<float, 2> data{};
  fails(pithAllReduce(data.data(), data.data(), 1 + count, pithFloat32, pithSum, revoked, nullptr),
        pithInvalidUsage, {"count"});
  self.meet();
  pithComm_t child = nullptr;
  ok(pithGroupStart());
  if (self.rank == 0) ok(pithCommSplit(revoked, 0, 0, &child, nullptr));
  ok(pithAllReduce(&one, &sum, 1, pithFloat32, pithSum, comm, nullptr));
  const pithResult_t end = pithGroupEnd();
  ensure(self.rank == 0 ? end != pithSuccess : end == pithSuccess, "another result");
  ensure(sum == 2, "the call was not made");
  ok(pithCommAbort(revoked));
}

// An abort is never refused, nor the end of what has been revoked: such calls only fail.
void abort_before_its_calls(Rank& self) {
  pithComm_t comm = self.join();
  pithComm_t revoked = nullptr;
  ok(pithCommSplit(comm, 0, 0, &revoked, nullptr));
  Reduction call(self, 1000, 4);
  for (pithComm_t each : {comm, revoked}) {
    self.meet();
    ok(pithGroupStart());
    ok(sum_into(call.send, call.recv, each));
    self.meet();  // then one aborts, and the others hear of it
    if (each == revoked && self.rank != 0) {
      pithResult_t state = pithSuccess;
      wait_until([&] {
        ok(pithCommGetAsyncError(each, &state));
        return state != pithSuccess;
      });
      ok(pithCommDestroy(each));
    } else {
      ok(pithCommAbort(each));
    }
    fails(pithGroupEnd(), pithRemoteError, {"aborted"});
  }
}

void on_processes(int size, const Body& body) {
  for (const Setup& setup : every_link()) {
    if (setup.way != Way::processes) continue;
    INFO(name_of(setup));
    CHECK(run(size, setup, body) == "");
  }
}

}  // namespace

TEST_CASE("groups nest", "[groups]") { on_every_link(3, nested); }
TEST_CASE("groups without calls", "[groups]") { on_every_link(2, empty_groups); }
TEST_CASE("a group of several communicators in any order", "[groups]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [&](Rank& self) { several_communicators(self, setup.way); }) == "");
  }
}
TEST_CASE("communicators made in a group", "[groups]") { on_processes(3, init_in_a_group); }
TEST_CASE("one thread drives all ranks", "[groups][threads]") {
  CHECK(run(1, alone(), one_thread) == "");
}
TEST_CASE("several groups in flight", "[groups]") {
  on_every_link(2, in_flight);
  on_every_link(3, in_flight);
}
TEST_CASE("groups that end on another thread", "[groups]") {
  on_every_link(2, ends_on_another_thread);
}
TEST_CASE("groups progress while the caller computes", "[groups]") {
  on_every_link(2, progresses_alone);
}
TEST_CASE("errors inside a group", "[groups]") { on_every_link(2, errors_in_groups); }
TEST_CASE("groups that end wrongly", "[groups]") { CHECK(run(1, alone(), wrong_ends) == ""); }
TEST_CASE("finalize waits for the background", "[groups]") { on_every_link(2, finalize_waits); }

TEST_CASE("a communicator does not end before a group's calls of it", "[groups]") {
  on_every_link(2, not_before_its_calls);
}
TEST_CASE("calls beside a set-up that fails are made", "[groups]") {
  on_every_link(2, calls_beside_a_failure);
}
TEST_CASE("an abort does, and what is revoked", "[groups]") {
  on_every_link(2, abort_before_its_calls);
}

TEST_CASE("groups between threads", "[threads]") {
  for (const char* transport : {"local", "shm", "tcp"}) {
    Setup setup;
    setup.way = Way::all;
    setup.transport = transport;
    INFO(name_of(setup));
    CHECK(run(3, setup, nested) == "");
    CHECK(run(3, setup, in_flight) == "");
    CHECK(run(2, setup, ends_on_another_thread) == "");
    CHECK(run(2, setup, progresses_alone) == "");
    CHECK(run(2, setup, finalize_waits) == "");
  }
}
