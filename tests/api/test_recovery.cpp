// After a failure: shrink and split while ranks die, stop, or disagree; every row of what the
// interface promises, between processes. PITH_TEST_FULL=1 waits for those that stop on more links.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

// Each link between processes.
std::vector<Setup> processes(double timeout_s = 0) {
  std::vector<Setup> setups = between_processes();
  for (Setup& setup : setups) {
    setup.limit_s = 40;
    if (timeout_s > 0) setup.environment = {{"PITH_TIMEOUT", std::to_string(timeout_s)}};
  }
  return setups;
}

// Within this time ranks hear of a death or a disagreement.
constexpr double limit_s = 1;

const bool all = std::getenv("PITH_TEST_FULL") != nullptr;

pithResult_t reduce_one(pithComm_t comm, std::int64_t value, std::int64_t& sum) {
  return pithAllReduce(&value, &sum, 1, pithInt64, pithSum, comm, nullptr);
}

std::uint64_t completed_of(pithComm_t comm) {
  std::uint64_t completed = 0;
  ok(pithCommGetLastCompleted(comm, &completed));
  return completed;
}

std::vector<int> failed_of(pithComm_t comm) {
  int n = 64;
  std::vector<int> failed(64, -1);
  ok(pithCommGetFailed(comm, failed.data(), &n));
  failed.resize(static_cast<std::size_t>(n));
  return failed;
}

int size_of(pithComm_t comm) {
  int size = 0;
  ok(pithCommCount(comm, &size));
  return size;
}

// Reduces until it fails.
pithResult_t reduce_until_error(pithComm_t comm) {
  pithResult_t result = pithSuccess;
  std::int64_t sum = 0;
  while (result == pithSuccess) result = reduce_one(comm, 1, sum);
  return result;
}

bool is_one_of(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool names_one_of(const std::string& text, const std::vector<int>& victims) {
  return std::any_of(victims.begin(), victims.end(), [&](int victim) {
    return text.find("rank " + std::to_string(victim)) != std::string::npos;
  });
}

// The survivors go on: shrink, a right sum, and all know the same; all calls that were completed,
// where it is certain how many.
void go_on(Rank& self, pithComm_t old, int survivors, std::optional<uint64_t> calls = {}) {
  pithComm_t comm = nullptr;
  const double start = now_s();
  ok(pithCommShrink(old, nullptr, 0, &comm, nullptr, PITH_SHRINK_DEFAULT));
  self.in_time(now_s() - start, limit_s, "the shrink");
  ensure(size_of(comm) == survivors, "so many survive: " + std::to_string(size_of(comm)));
  std::int64_t sum = 0;
  ok(reduce_one(comm, 1, sum));
  ensure(sum == survivors, "a wrong sum after the shrink");
  const std::uint64_t completed = completed_of(comm);
  ensure(completed == completed_of(old), "the old communicator knows another number of calls");
  if (calls) ensure(completed == *calls, "completed: " + std::to_string(completed));
  std::uint64_t failed = 0;
  for (const int rank : failed_of(old)) failed |= std::uint64_t{1} << rank;
  std::int64_t mine[2] = {static_cast<std::int64_t>(completed), static_cast<std::int64_t>(failed)};
  std::int64_t least[2];
  std::int64_t most[2];
  ok(pithAllReduce(mine, least, 2, pithInt64, pithMin, comm, nullptr));
  ok(pithAllReduce(mine, most, 2, pithInt64, pithMax, comm, nullptr));
  ensure(std::equal(least, least + 2, most), "survivors know different things");
  ok(pithCommDestroy(comm));
}

// How long ago the last of them died; at once, where none has yet.
double since_last_death(Rank& self, const std::vector<int>& victims) {
  double least = 1e9;
  for (const int victim : victims) {
    const double since = self.since_death_of(victim);
    if (since >= 0) least = std::min(least, since);
  }
  return least == 1e9 ? 0 : least;
}

}  // namespace

TEST_CASE("survivors shrink and go on", "[recovery]") {
  const std::vector<std::vector<int>> all_victims = {{0}, {2}, {4}, {0, 1}, {0, 3}, {2, 4}};
  for (const Setup& setup : processes()) {
    for (const std::vector<int>& victims : all_victims) {
      INFO(name_of(setup) << ", first victim " << victims.front() << " of " << victims.size());
      CHECK(run_in_time(5, setup, [&](Rank& self) {
              const Comm comm(self.join());
              std::int64_t sum = 0;
              for (int i = 0; i < 10; ++i) ok(reduce_one(comm, 1, sum));
              ensure(completed_of(comm) == 0, "calls are counted before a shrink");
              self.meet();
              if (is_one_of(victims, self.rank)) self.die();
              const pithResult_t result = reduce_until_error(comm);
              self.in_time(since_last_death(self, victims), limit_s, "to hear of it");
              const std::string text = pithGetLastError(nullptr);
              ensure(result == pithRemoteError, "code " + std::to_string(result) + ": " + text);
              ensure(names_one_of(text, victims), "\"" + text + "\" does not name the victim");
              go_on(self, comm, self.size - static_cast<int>(victims.size()), 10);
              std::string said;
              for (const int rank : failed_of(comm)) said.append(" ").append(std::to_string(rank));
              ensure(failed_of(comm) == victims, said);
            }) == "");
    }
  }
}

// The root of broadcasts is ahead of those who receive them.
TEST_CASE("survivors agree on the last call that all of them completed", "[recovery]") {
  for (const Setup& setup : processes()) {
    INFO(name_of(setup));
    CHECK(run(4, setup, [](Rank& self) {
            const Comm comm(self.join());
            std::uint64_t completed = 0;
            std::int64_t word = 0;
            while (pithBroadcast(&word, &word, 1, pithInt64, 0, comm, nullptr) == pithSuccess) {
              ++completed;
              if (self.rank == 3 && completed == 50) self.die();
              if (self.rank == 2) sleep_s(0.0001);
            }
            self.slot(self.rank) = completed + 1;  // 0: not yet known
            const auto known = [&](int rank) { return self.slot(rank) != 0; };
            wait_until([&] { return known(0) && known(1) && known(2); });
            std::uint64_t least = completed;
            for (int rank = 0; rank < 3; ++rank) least = std::min(least, self.slot(rank) - 1);
            go_on(self, comm, 3, least);
          }) == "");
  }
}

TEST_CASE("ranks die during a split", "[recovery]") {
  const std::vector<std::vector<int>> all_victims = {{0}, {1}, {3}, {0, 1}, {1, 3}};
  for (const Setup& setup : processes()) {
    for (const std::vector<int>& victims : all_victims) {
      INFO(name_of(setup) << ", first victim " << victims.front() << " of " << victims.size());
      CHECK(run_in_time(4, setup, [&](Rank& self) {
              const Comm comm(self.join());
              self.meet();
              if (is_one_of(victims, self.rank)) {
                std::thread([&self] {
                  sleep_s(0.002 * (getpid() % 8));
                  self.die();
                }).detach();
              }
              pithComm_t child = nullptr;
              pithResult_t result = pithSuccess;
              while (result == pithSuccess) {
                ok(pithCommDestroy(child));
                // Keys turn the order around.
                result = pithCommSplit(comm, 0, -self.rank, &child, nullptr);
              }
              if (is_one_of(victims, self.rank)) sleep_s(5);  // another one was faster
              self.in_time(since_last_death(self, victims), limit_s, "to hear of it");
              fails(result, pithRemoteError, {});
              const std::string text = pithGetLastError(nullptr);
              ensure(names_one_of(text, victims), "\"" + text + "\" does not name the victim");
              wait_until([&] {
                return std::all_of(victims.begin(), victims.end(),
                                   [&](int victim) { return self.since_death_of(victim) >= 0; });
              });
              go_on(self, comm, self.size - static_cast<int>(victims.size()));
              ensure(failed_of(comm) == victims, "others are said to have died");
            }) == "");
    }
  }
}

TEST_CASE("ranks die during a shrink", "[recovery]") {
  for (const Setup& setup : processes()) {
    for (const int second : {1, 4}) {
      for (const int delay_ms : {0, 1, 4, 12}) {
        INFO(name_of(setup) << ", second victim " << second << " after " << delay_ms << " ms");
        CHECK(run_in_time(5, setup, [&](Rank& self) {
                const Comm comm(self.join());
                self.meet();
                if (self.rank == 0) self.die();
                ensure(reduce_until_error(comm) == pithRemoteError, "no remote error");
                if (self.rank == second) {
                  std::thread([&self, delay_ms] {
                    sleep_s(0.001 * delay_ms);
                    self.die();
                  }).detach();
                }
                pithComm_t next = nullptr;
                const double start = now_s();
                ok(pithCommShrink(comm, nullptr, 0, &next, nullptr, PITH_SHRINK_DEFAULT));
                const double since = self.since_death_of(second);
                const double took = now_s() - start;
                self.in_time(since < 0 ? took : std::min(since, took), limit_s, "the shrink");
                const Comm shrunk(next);
                if (self.rank == second) sleep_s(5);
                // It may have died just after the shrink.
                if (size_of(shrunk) == 3) {
                  std::int64_t sum = 0;
                  ok(reduce_one(shrunk, 1, sum));
                  ensure(sum == 3, "a wrong sum");
                } else {
                  ensure(reduce_until_error(shrunk) == pithRemoteError, "no remote error");
                  go_on(self, shrunk, 3);
                }
              }) == "");
      }
    }
  }
}

namespace {

constexpr double timeout_s = 1;

// Stops, and is woken by wake() when the others have gone on without it.
void stop_and_wake(Rank& self, pithComm_t comm) {
  raise(SIGSTOP);
  const double woken = now_s();
  fails(reduce_until_error(comm), pithRemoteError, {});
  self.in_time(now_s() - woken, limit_s, "the one that woke up: to hear of it");
}

void wake(Rank& self, int victim) {
  self.slot(self.rank, 1) = 1;
  if (self.rank != 1) return;
  wait_until([&] { return self.slot(victim == 0 ? 2 : 0, 1) != 0; }, 20);
  kill(static_cast<pid_t>(self.slot(victim)), SIGCONT);
}

// What those do who wait for one that has stopped.
void wait_for_stopped(Rank& self, pithComm_t comm, int victim) {
  const double start = now_s();
  const pithResult_t result = reduce_until_error(comm);
  const double took = now_s() - start;
  fails(result, pithRemoteError, {"rank " + std::to_string(victim)});
  ensure(took > 0.9 * timeout_s, "given up after " + std::to_string(took) + " s");
  self.in_time(took, timeout_s + limit_s, "to give it up");
  ensure(failed_of(comm).empty(), "who has stopped is not dead");
}

void go_on_without(pithComm_t comm, int victim) {
  pithComm_t next = nullptr;
  ok(pithCommShrink(comm, &victim, 1, &next, nullptr, PITH_SHRINK_DEFAULT));
  const Comm shrunk(next);
  ensure(size_of(shrunk) == 2, "a wrong size");
  for (int turn = 0; turn < 10; ++turn) {
    std::int64_t sum = 0;
    ok(reduce_one(shrunk, 1, sum));
    ensure(sum == 2, "a wrong sum");
  }
}

// `shrinks`: or the survivors let go of the communicator.
void check_stopped(const Setup& setup, int victim, bool shrinks) {
  INFO(name_of(setup) << ", victim " << victim << (shrinks ? ", shrunk" : ", destroyed"));
  CHECK(run_in_time(3, setup, [&](Rank& self) {
          Comm comm(self.join());
          std::int64_t sum = 0;
          ok(reduce_one(comm, 1, sum));
          if (self.rank == victim) self.slot(victim) = static_cast<std::uint64_t>(getpid());
          self.meet();
          if (self.rank == victim) return stop_and_wake(self, comm);
          wait_for_stopped(self, comm, victim);
          if (shrinks) go_on_without(comm, victim);
          const double end = now_s();
          ok(pithCommDestroy(comm.release()));
          self.in_time(now_s() - end, 1.5, "Destroy beside one that has stopped");
          wake(self, victim);
        }) == "");
}

}  // namespace

TEST_CASE("a rank is stopped, and those who leave it out go on", "[recovery]") {
  for (const Setup& setup : processes(timeout_s)) {
    for (const int victim : {0, 2}) {
      if (victim == 2 && setup.transport != "shm" && !all) continue;
      check_stopped(setup, victim, true);
    }
  }
}

TEST_CASE("a rank is stopped, and the others destroy the communicator", "[recovery]") {
  for (const Setup& setup : processes(timeout_s)) {
    if (setup.transport == "ucx" && !all) continue;
    check_stopped(setup, setup.transport == "tcp" ? 2 : 0, false);
  }
}

namespace {

// `refused`: it makes one call, which is refused and never repeated.
void check_silent(const Setup& setup, int victim, bool refused) {
  INFO(name_of(setup) << ", victim " << victim << (refused ? ", refused" : ""));
  CHECK(run_in_time(3, setup, [&](Rank& self) {
          const Comm comm(self.join());
          std::int64_t sum = 0;
          ok(reduce_one(comm, 1, sum));
          if (self.rank == victim) {
            if (refused) {
              fails(pithAllReduce(nullptr, &sum, 1, pithInt64, pithSum, comm, nullptr),
                    pithInvalidArgument, {"send is NULL"});
            }
            wait_until([&] {
              pithResult_t state = pithSuccess;
              ok(pithCommGetAsyncError(comm, &state));
              return state == pithRemoteError;
            });
            return;
          }
          const double start = now_s();
          fails(reduce_until_error(comm), pithRemoteError,
                {"rank " + std::to_string(victim) + " did not call"});
          self.in_time(now_s() - start, timeout_s + limit_s, "to give it up");
        }) == "");
}

}  // namespace

TEST_CASE("a rank never calls", "[recovery]") {
  for (const Setup& setup : processes(timeout_s)) {
    for (const int victim : {0, 2}) {
      if (victim == 0 && setup.transport != "shm" && !all) continue;
      check_silent(setup, victim, false);
    }
  }
}

TEST_CASE("a rank's call is refused, and it never calls again", "[recovery]") {
  for (const Setup& setup : processes(timeout_s)) check_silent(setup, 2, true);
}

TEST_CASE("a split that one rank does not join", "[recovery]") {
  for (const Setup& setup : processes(timeout_s)) {
    INFO(name_of(setup));
    CHECK(run_in_time(3, setup, [](Rank& self) {
            const Comm comm(self.join());
            self.meet();
            const double start = now_s();
            if (self.rank != 1) {
              pithComm_t child = nullptr;
              fails(pithCommSplit(comm, 0, 0, &child, nullptr), pithRemoteError, {"rank 1"});
              self.in_time(now_s() - start, timeout_s + limit_s, "to give it up");
            }
            self.meet();
          }) == "");
  }
}

TEST_CASE("the timeout of a communicator's own config, and of its child", "[recovery]") {
  for (Setup setup : processes()) {
    setup.environment = {{"PITH_TIMEOUT", "100"}};
    INFO(name_of(setup));
    CHECK(run_in_time(2, setup, [](Rank& self) {
            pithConfig_t config = PITH_CONFIG_INITIALIZER;
            config.timeout = static_cast<int>(timeout_s);
            pithComm_t made = nullptr;
            ok(pithCommInitRankConfig(&made, self.size, self.id(), self.rank, &config));
            const Comm comm(made);
            ok(pithCommSplit(comm, 0, 0, &made, nullptr));
            const Comm child(made);
            self.meet();
            const double start = now_s();
            if (self.rank == 0) {
              std::int64_t sum = 0;
              fails(reduce_one(child, 1, sum), pithRemoteError, {"rank 1"});
              self.in_time(now_s() - start, timeout_s + limit_s, "to give it up");
            }
            self.meet();
          }) == "");
  }
}

TEST_CASE("what still works after a revocation", "[recovery]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            void* memory = nullptr;
            ok(pithMemAlloc(&memory, 1000));
            double factor = 2;
            pithRedOp_t op = pithSum;
            ok(pithRedOpCreatePreMulSum(&op, &factor, pithFloat64, pithScalarHostImmediate, comm));
            ok(pithBarrier(comm, nullptr));
            self.meet();
            if (self.rank == 1) {
              ok(pithCommAbort(comm));
              ok(pithMemFree(memory));
              self.meet();
              return;
            }
            pithResult_t state = pithSuccess;
            wait_until([&] {
              ok(pithCommGetAsyncError(comm, &state));
              return state != pithSuccess;
            });
            ensure(state == pithRemoteError, "another code");
            const double start = now_s();
            fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 1"});
            ok(pithGroupStart());  // of calls that would send nothing
            for (int i = 0; i < 2; ++i) {
              ok(pithAllReduce(memory, memory, 0, pithFloat32, pithSum, comm, nullptr));
            }
            fails(pithGroupEnd(), pithRemoteError, {"rank 1"});
            int value = -1;
            ok(pithCommCount(comm, &value));
            ensure(value == 3, "a wrong count");
            ok(pithCommUserRank(comm, &value));
            ensure(value == self.rank, "a wrong rank");
            pithComm_t child = nullptr;
            fails(pithCommSplit(comm, 0, 0, &child, nullptr), pithRemoteError, {"rank 1"});
            failed_of(comm);
            ok(pithRedOpDestroy(op, comm));
            ok(pithMemFree(memory));
            ensure(now_s() - start < 2, "calls on a revoked communicator waited");
            int excluded = 1;
            ok(pithCommShrink(comm, &excluded, 1, &child, nullptr, PITH_SHRINK_DEFAULT));
            std::int64_t sum = 0;
            ok(reduce_one(child, 1, sum));
            ensure(sum == 2, "a wrong sum");
            const double end = now_s();
            ok(pithCommDestroy(comm));
            ensure(now_s() - end < 3, "Destroy blocked");
            ok(reduce_one(child, 1, sum));
            ok(pithCommDestroy(child));
            self.meet();
          }) == "");
  }
}
