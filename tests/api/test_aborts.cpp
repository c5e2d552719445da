// Aborts of communicators that are being made, or of which others are: whoever waits returns, and
// the other ranks go on.
#include <thread>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr double soon_s = 4;

pithConfig_t not_blocking() {
  pithConfig_t config = PITH_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

int size_of(pithComm_t comm) {
  int size = 0;
  ok(pithCommCount(comm, &size));
  return size;
}

pithResult_t sum_of_ones(pithComm_t comm, std::int64_t& sum) {
  const std::int64_t one = 1;
  return pithAllReduce(&one, &sum, 1, pithInt64, pithSum, comm, nullptr);
}

pithComm_t join_in_background(Rank& self, int which) {
  pithConfig_t config = not_blocking();
  pithComm_t comm = nullptr;
  pithResult_t state = pithCommInitRankConfig(&comm, self.size, self.id(which), self.rank, &config);
  ensure(state == pithInProgress, "not in progress");
  wait_until([&] {
    ok(pithCommGetAsyncError(comm, &state));
    return state != pithInProgress;
  });
  ensure(state == pithSuccess, "not made");
  return comm;
}

// Those who stay make a communicator, and use it.
void go_on(pithComm_t comm, int expected) {
  pithComm_t next = nullptr;
  ok(pithCommShrink(comm, nullptr, 0, &next, nullptr, PITH_SHRINK_DEFAULT));
  const Comm shrunk(next);
  ensure(size_of(shrunk) == expected, "so many stay: " + std::to_string(size_of(shrunk)));
  std::int64_t sum = 0;
  ok(sum_of_ones(shrunk, sum));
  ensure(sum == expected, "a wrong sum");
}

// Rank 2 never comes before rank 0 has given up; rank 1 waits in the same shrink.
void shrink_that_one_does_not_join(Rank& self) {
  pithComm_t comm = self.join();
  ok(pithBarrier(comm, nullptr));
  if (self.rank == 1) go_on(comm, 2);
  if (self.rank == 2) {
    wait_until([&] { return self.slot(0) != 0; }, 20);
    go_on(comm, 2);
  }
  if (self.rank != 0) return ok(pithCommDestroy(comm));

  std::thread aborter([comm] {
    sleep_s(0.5);
    pithCommAbort(comm);
  });
  pithComm_t child = nullptr;
  const double begin = now_s();
  const pithResult_t result =
      pithCommShrink(comm, nullptr, 0, &child, nullptr, PITH_SHRINK_DEFAULT);
  const double took = now_s() - begin;
  const std::string text = pithGetLastError(nullptr);
  aborter.join();
  self.slot(0) = 1;
  ensure(result == pithRemoteError && !child, "code " + std::to_string(result));
  ensure(text == "rank 0 aborted the communicator", text);
  ensure(took < soon_s, "the shrink went on");
}

void shrink_in_the_background(Rank& self) {
  pithComm_t comm = join_in_background(self, 0);
  self.meet();
  const double begin = now_s();
  if (self.rank == 0) {
    pithComm_t child = nullptr;
    ensure(pithCommShrink(comm, nullptr, 0, &child, nullptr, PITH_SHRINK_DEFAULT) == pithInProgress,
           "not in progress");
    sleep_s(0.1);
    ok(pithCommAbort(comm));
    ensure(!child, "a child of one rank");
    ensure(now_s() - begin < soon_s, "the abort waited for the shrink");
  }
  self.meet();
  if (self.rank != 0) ok(pithCommAbort(comm));
}

// The abort comes at any time of the shrink: before, while or after the child is made.
void abort_at_any_time(Rank& self) {
  for (int turn = 0; turn < ids; ++turn) {
    pithComm_t comm = join_in_background(self, turn);
    self.meet();
    pithComm_t child = nullptr;
    pithConfig_t config = PITH_CONFIG_INITIALIZER;
    config.blocking = 1;
    pithResult_t state = pithCommShrink(comm, nullptr, 0, &child, &config, PITH_SHRINK_DEFAULT);
    ensure(state == pithInProgress, "not in progress");
    const double begin = now_s();
    if (self.rank == 0) {
      sleep_s(0.0015 * turn);
      ok(pithCommAbort(comm));
      ensure(now_s() - begin < soon_s, "the abort waited for the shrink");
      self.slot(0) = child ? 1 : 0;
    } else {
      wait_until([&] {
        ok(pithCommGetAsyncError(comm, &state));
        return state != pithInProgress;  // or what has revoked it
      });
      ensure(child != nullptr, "no communicator of those who stay");
      ok(pithCommDestroy(comm));
    }
    self.meet();
    if (!child) continue;
    // Where all had made it, and rank 0 did not get to know, it is no more.
    const Comm made(child);
    const int size = size_of(made);
    std::int64_t sum = 0;
    if (size == self.size && self.slot(0) == 0) {
      ensure(sum_of_ones(made, sum) == pithRemoteError, "a call without one of its ranks");
    } else {
      ok(sum_of_ones(made, sum));
      ensure(sum == size, "a wrong sum");
    }
  }
}

// Rank 1 comes when rank 0 has gone.
void creation_that_one_does_not_join(Rank& self) {
  const pithUniqueId id = self.id();
  if (self.rank == 0) {
    pithConfig_t config = not_blocking();
    pithComm_t comm = nullptr;
    ensure(pithCommInitRankConfig(&comm, self.size, id, 0, &config) == pithInProgress,
           "not in progress");
    sleep_s(0.2);
    const double begin = now_s();
    ok(pithCommAbort(comm));
    ensure(now_s() - begin < soon_s, "the abort waited for the creation");
    self.meet();
  } else {
    self.meet();
    pithComm_t comm = nullptr;
    const double begin = now_s();
    ensure(pithCommInitRank(&comm, self.size, id, self.rank) == pithRemoteError, "no remote error");
    ensure(now_s() - begin < soon_s, "rank 1 waited for rank 0");
  }
  self.meet();
}

// At any time of a creation that all join: nobody waits for the rank that has gone.
void abort_during_creation(Rank& self) {
  for (int turn = 0; turn < ids; ++turn) {
    const pithUniqueId id = self.id(turn);
    self.meet();
    pithComm_t comm = nullptr;
    const double begin = now_s();
    if (self.rank == 0) {
      pithConfig_t config = not_blocking();
      ensure(pithCommInitRankConfig(&comm, self.size, id, 0, &config) == pithInProgress,
             "not in progress");
      sleep_s(0.0015 * turn);
      ok(pithCommAbort(comm));
    } else if (pithCommInitRank(&comm, self.size, id, self.rank) == pithSuccess) {
      std::int64_t sum = 0;
      ensure(sum_of_ones(comm, sum) == pithRemoteError, "a call without one of its ranks");
      ok(pithCommDestroy(comm));
    }
    ensure(now_s() - begin < soon_s, "it took " + std::to_string(now_s() - begin) + " s");
    self.meet();
  }
}

// At any time of short calls of the thread that issues them, which may be about to begin one.
void abort_between_calls(Rank& self) {
  const Comm parent(self.join());
  for (int turn = 0; turn < 40; ++turn) {
    pithComm_t comm = nullptr;
    ok(pithCommSplit(parent, 0, 0, &comm, nullptr));
    std::thread caller([&] {
      std::int64_t sum = 0;
      while (sum_of_ones(comm, sum) == pithSuccess) {
      }
    });
    std::thread watcher([&] {
      for (int i = 0; i < 200; ++i) {
        pithResult_t state = pithSuccess;
        if (pithCommGetAsyncError(comm, &state) != pithSuccess) break;
        static_cast<void>(pithGetLastError(comm));
      }
    });
    sleep_s(0.0001 * (turn % 7));
    ok(pithCommAbort(comm));
    caller.join();
    watcher.join();
    self.meet();
  }
}

// Whoever waits for ever otherwise.
Setup without_timeout(Setup setup) {
  setup.environment = {{"PITH_TIMEOUT", "0"}};
  setup.limit_s = 60;
  return setup;
}

}  // namespace

TEST_CASE("abort of a shrink that one rank does not join", "[recovery][threads]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(3, without_timeout(setup), shrink_that_one_does_not_join) == "");
  }
}

TEST_CASE("abort of a shrink in the background", "[recovery]") {
  for (const Setup& setup : every_link()) {
    if (setup.way == Way::all) continue;
    INFO(name_of(setup));
    CHECK(run(2, without_timeout(setup), shrink_in_the_background) == "");
  }
}

TEST_CASE("abort at any time of a shrink", "[recovery]") {
  for (const Setup& setup : every_link()) {
    if (setup.way == Way::all) continue;
    INFO(name_of(setup));
    CHECK(run(3, without_timeout(setup), abort_at_any_time) == "");
  }
}

TEST_CASE("abort between the calls of another thread", "[aborts][threads]") {
  for (const Setup& setup : every_link()) {
    if (setup.way == Way::all) continue;
    INFO(name_of(setup));
    CHECK(run(2, without_timeout(setup), abort_between_calls) == "");
  }
}

TEST_CASE("abort of a creation", "[recovery][threads]") {
  for (const Setup& setup : every_link()) {
    if (setup.way == Way::all) continue;
    INFO(name_of(setup));
    CHECK(run(2, without_timeout(setup), creation_that_one_does_not_join) == "");
    CHECK(run(3, without_timeout(setup), abort_during_creation) == "");
  }
}
