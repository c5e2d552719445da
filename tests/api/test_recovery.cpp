// After a failure: shrink and split while ranks die, stop, or disagree; every row of what the
// interface promises, between processes.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

Setup processes(const char* transport, double timeout_s = 0) {
  Setup setup;
  setup.transport = transport;
  setup.may_be_killed = true;
  setup.limit_s = 40;
  if (timeout_s > 0) setup.environment = {{"PITH_TIMEOUT", std::to_string(timeout_s)}};
  return setup;
}

pithResult_t reduce_one(pithComm_t comm, std::int64_t value, std::int64_t& sum) {
  return pithAllReduce(&value, &sum, 1, pithInt64, pithSum, comm, nullptr);
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

// What ranks that do not block wait for.
pithResult_t settle(pithResult_t result, pithComm_t comm) {
  wait_until([&] {
    if (result != pithInProgress) return true;
    ok(pithCommGetAsyncError(comm, &result));
    return result != pithInProgress;
  });
  return result;
}

// The survivors go on: shrink, a right sum, and all know the same; all calls that were completed,
// where it is certain how many.
void go_on(pithComm_t old, int survivors, double limit_s = 4, std::optional<uint64_t> calls = {}) {
  pithComm_t comm = nullptr;
  const double start = now_s();
  ok(pithCommShrink(old, nullptr, 0, &comm, nullptr, PITH_SHRINK_DEFAULT));
  ensure(now_s() - start < limit_s, "shrink took " + std::to_string(now_s() - start) + " s");
  ensure(size_of(comm) == survivors, "so many survive: " + std::to_string(size_of(comm)));
  std::int64_t sum = 0;
  ok(reduce_one(comm, 1, sum));
  ensure(sum == survivors, "a wrong sum after the shrink");
  uint64_t completed = 0;
  ok(pithCommGetLastCompleted(comm, &completed));
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

bool is_one_of(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

TEST_CASE("survivors shrink and go on", "[recovery]") {
  const std::vector<std::vector<int>> all_victims = {{0}, {2}, {4}, {0, 1}, {0, 3}, {2, 4}};
  for (const char* transport : {"shm", "tcp"}) {
    for (const std::vector<int>& victims : all_victims) {
      INFO(transport << ", first victim " << victims.front() << " of " << victims.size());
      CHECK(run(5, processes(transport), [&](Rank& self) {
              const Comm comm(self.join());
              std::int64_t sum = 0;
              for (int i = 0; i < 10; ++i) ok(reduce_one(comm, 1, sum));
              self.meet();
              if (is_one_of(victims, self.rank)) raise(SIGKILL);
              const double start = now_s();
              const pithResult_t result = reduce_until_error(comm);
              const std::string text = pithGetLastError(nullptr);
              ensure(result == pithRemoteError, "code " + std::to_string(result) + ": " + text);
              ensure(now_s() - start < 3, "heard of it late");
              const bool named = std::any_of(victims.begin(), victims.end(), [&](int victim) {
                return text.find("rank " + std::to_string(victim)) != std::string::npos;
              });
              ensure(named, "\"" + text + "\" does not name the victim");
              go_on(comm, self.size - static_cast<int>(victims.size()), 4, 10);
              std::string said;
              for (const int rank : failed_of(comm)) said.append(" ").append(std::to_string(rank));
              ensure(failed_of(comm) == victims, said);
            }) == "");
    }
  }
}

TEST_CASE("ranks die during a split", "[recovery]") {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int victim : {0, 1, 3}) {
      INFO(transport << ", victim " << victim);
      CHECK(run(4, processes(transport), [&](Rank& self) {
              const Comm comm(self.join());
              self.meet();
              if (self.rank == victim) {
                std::thread([] {
                  sleep_s(0.002 * (getpid() % 8));
                  raise(SIGKILL);
                }).detach();
              }
              const double start = now_s();
              pithComm_t child = nullptr;
              pithResult_t result = pithSuccess;
              while (result == pithSuccess) {
                ok(pithCommDestroy(child));
                // Keys turn the order around.
                result = pithCommSplit(comm, 0, -self.rank, &child, nullptr);
              }
              fails(result, pithRemoteError, {"rank " + std::to_string(victim)});
              ensure(now_s() - start < 4, "heard of it late");
              go_on(comm, 3);
            }) == "");
    }
  }
}

TEST_CASE("ranks die during a shrink", "[recovery]") {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int second : {1, 4}) {
      for (const int delay_ms : {0, 1, 4, 12}) {
        INFO(transport << ", second victim " << second << " after " << delay_ms << " ms");
        CHECK(run(5, processes(transport), [&](Rank& self) {
                const Comm comm(self.join());
                self.meet();
                if (self.rank == 0) raise(SIGKILL);
                ensure(reduce_until_error(comm) == pithRemoteError, "no remote error");
                if (self.rank == second) {
                  std::thread([delay_ms] {
                    sleep_s(0.001 * delay_ms);
                    raise(SIGKILL);
                  }).detach();
                }
                pithComm_t next = nullptr;
                const double start = now_s();
                ok(pithCommShrink(comm, nullptr, 0, &next, nullptr, PITH_SHRINK_DEFAULT));
                ensure(now_s() - start < 4, "the shrink took long");
                const Comm shrunk(next);
                if (self.rank == second) sleep_s(5);
                // It may have died just after the shrink.
                if (size_of(shrunk) == 3) {
                  std::int64_t sum = 0;
                  ok(reduce_one(shrunk, 1, sum));
                  ensure(sum == 3, "a wrong sum");
                } else {
                  ensure(reduce_until_error(shrunk) == pithRemoteError, "no remote error");
                  go_on(shrunk, 3);
                }
              }) == "");
      }
    }
  }
}

TEST_CASE("a rank is stopped", "[recovery]") {
  for (const char* transport : {"shm", "tcp"}) {
    for (const int victim : {0, 2}) {
      INFO(transport << ", victim " << victim);
      CHECK(run(3, processes(transport, 2), [&](Rank& self) {
              const Comm comm(self.join());
              std::int64_t sum = 0;
              ok(reduce_one(comm, 1, sum));
              if (self.rank == victim) self.slot(victim) = static_cast<std::uint64_t>(getpid());
              self.meet();
              if (self.rank == victim) {
                raise(SIGSTOP);
                sleep_s(1);
                return;
              }
              const double start = now_s();
              const pithResult_t result = reduce_until_error(comm);
              const double took = now_s() - start;
              self.slot(self.rank) = 1;
              if (self.rank == 1) {
                wait_until([&] { return self.slot(victim == 0 ? 2 : 0) != 0; }, 20);
                kill(static_cast<pid_t>(self.slot(victim)), SIGCONT);
              }
              fails(result, pithRemoteError, {"rank " + std::to_string(victim)});
              ensure(took > 1.5 && took < 9, "took " + std::to_string(took) + " s");
            }) == "");
    }
  }
}

TEST_CASE("a rank never calls", "[recovery]") {
  for (const int victim : {0, 2}) {
    INFO("victim " << victim);
    CHECK(run(3, processes("shm", 1), [&](Rank& self) {
            const Comm comm(self.join());
            std::int64_t sum = 0;
            ok(reduce_one(comm, 1, sum));
            if (self.rank == victim) {
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
            ensure(now_s() - start < 4, "it took long");
          }) == "");
  }
}

TEST_CASE("a split that one rank does not join", "[recovery]") {
  CHECK(run(3, processes("shm", 1), [&](Rank& self) {
          const Comm comm(self.join());
          if (self.rank != 1) {
            pithComm_t child = nullptr;
            fails(pithCommSplit(comm, 0, 0, &child, nullptr), pithRemoteError, {"rank 1"});
          }
          self.meet();
        }) == "");
}

namespace {

struct Call {
  const char* what;
  std::function<pithResult_t(int rank, pithComm_t comm, char* send, char* recv)> make;
};

std::vector<Call> disagreements() {
  const auto differs = [](int rank) { return rank == 2; };
  return {
      {"count",
       [differs](int rank, pithComm_t comm, char* send, char* recv) {
         return pithAllReduce(send, recv, differs(rank) ? 11 : 10, pithFloat32, pithSum, comm,
                              nullptr);
       }},
      {"count, other algorithms",
       [differs](int rank, pithComm_t comm, char* send, char* recv) {
         return pithAllReduce(send, recv, differs(rank) ? 2'000'000 : 10, pithFloat32, pithSum,
                              comm, nullptr);
       }},
      {"count 0",
       [differs](int rank, pithComm_t comm, char* send, char* recv) {
         return pithAllReduce(send, recv, differs(rank) ? 0 : 10, pithFloat32, pithSum, comm,
                              nullptr);
       }},
      {"type",
       [differs](int rank, pithComm_t comm, char* send, char* recv) {
         return pithAllReduce(send, recv, 10, differs(rank) ? pithInt32 : pithFloat32, pithSum,
                              comm, nullptr);
       }},
      {"op",
       [differs](int rank, pithComm_t comm, char* send, char* recv) {
         return pithAllReduce(send, recv, 10, pithFloat32, differs(rank) ? pithMax : pithSum, comm,
                              nullptr);
       }},
      {"root",
       [differs](int rank, pithComm_t comm, char* send, char* recv) {
         return pithBroadcast(send, recv, 10, pithFloat32, differs(rank) ? 2 : 0, comm, nullptr);
       }},
      {"collective",
       [differs](int rank, pithComm_t comm, char* send, char* recv) {
         return differs(rank) ? pithBarrier(comm, nullptr)
                              : pithAllGather(send, recv, 10, pithFloat32, comm, nullptr);
       }},
      {"collective, one way",
       [differs](int rank, pithComm_t comm, char* send, char* recv) {
         return differs(rank) ? pithReduce(send, recv, 10, pithFloat32, pithSum, 0, comm, nullptr)
                              : pithBroadcast(send, recv, 10, pithFloat32, 0, comm, nullptr);
       }},
  };
}

}  // namespace

TEST_CASE("ranks disagree", "[recovery]") {
  const std::vector<Call> calls = disagreements();
  for (const char* transport : {"shm", "tcp"}) {
    for (const Call& call : calls) {
      INFO(transport << ", " << call.what);
      CHECK(run(3, processes(transport), [&](Rank& self) {
              const Comm comm(self.join());
              std::vector<char> send(8'000'000);
              std::vector<char> recv(8'000'000);
              ok(pithBarrier(comm, nullptr));
              self.meet();
              const double start = now_s();
              pithResult_t result = call.make(self.rank, comm, send.data(), recv.data());
              // An eager rank hears of it later.
              wait_until([&] {
                if (result != pithSuccess) return true;
                ok(pithCommGetAsyncError(comm, &result));
                if (result != pithSuccess) pithBarrier(comm, nullptr);
                return result != pithSuccess;
              });
              const std::string text = pithGetLastError(nullptr);
              ensure(result == pithInvalidUsage, "code " + std::to_string(result) + ": " + text);
              ensure(text.find("rank 2") != std::string::npos, text);
              ensure(now_s() - start < 3, "it took " + std::to_string(now_s() - start) + " s");
              ensure(text.find("rank 0") != std::string::npos ||
                         text.find("rank 1") != std::string::npos,
                     text);
              self.meet();
            }) == "");
    }
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

TEST_CASE("splits of splits, by color and key", "[recovery]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(6, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            pithComm_t half = nullptr;
            const int color = self.rank == 5 ? PITH_SPLIT_NOCOLOR : self.rank % 2;
            ok(pithCommSplit(comm, color, -self.rank, &half, nullptr));
            ensure((half == nullptr) == (self.rank == 5), "a communicator for no color");
            ok(pithCommDestroy(comm));  // the child outlives it
            if (!half) return;
            // Colors {0, 2, 4} and {1, 3}, turned around.
            int rank = -1;
            ok(pithCommUserRank(half, &rank));
            const int expected = self.rank % 2 == 0 ? (4 - self.rank) / 2 : (3 - self.rank) / 2;
            ensure(rank == expected, "a rank out of order");
            std::int64_t sum = 0;
            ok(reduce_one(half, self.rank, sum));
            ensure(sum == (self.rank % 2 == 0 ? 6 : 4), "a wrong sum");
            pithComm_t quarter = nullptr;
            ok(pithCommSplit(half, rank == 0 ? 7 : 3, 1'000'000 - rank, &quarter, nullptr));
            ok(pithCommDestroy(half));
            ok(reduce_one(quarter, self.rank, sum));
            const std::int64_t sums[] = {2, 1, 2, 3, 4};
            ensure(sum == sums[self.rank], "a wrong sum of the grandchild");
            ok(pithCommDestroy(quarter));
          }) == "");
  }
}

TEST_CASE("ranks that do not block", "[recovery]") {
  CHECK(run(3, processes("shm"), [](Rank& self) {
          pithConfig_t config = PITH_CONFIG_INITIALIZER;
          config.blocking = 0;
          pithComm_t comm = nullptr;
          const pithResult_t begun =
              pithCommInitRankConfig(&comm, self.size, self.id(), self.rank, &config);
          ok(settle(begun, comm));
          std::int64_t one = 1;
          std::int64_t sum = 0;
          ok(settle(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, comm, nullptr), comm));
          ensure(sum == 3, "a wrong sum");
          pithComm_t child = nullptr;
          ok(settle(pithCommSplit(comm, 0, 0, &child, nullptr), comm));
          ensure(child != nullptr, "no child");
          ok(settle(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, child, nullptr), child));
          self.meet();
          if (self.rank == 2) raise(SIGKILL);
          const pithResult_t lost =
              settle(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, child, nullptr), child);
          ensure(lost == pithRemoteError, "no remote error");
          pithComm_t shrunk = nullptr;
          // The old one stays revoked, and says so.
          settle(pithCommShrink(child, nullptr, 0, &shrunk, nullptr, PITH_SHRINK_DEFAULT), child);
          ensure(shrunk != nullptr, "no communicator of the survivors");
          ok(settle(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, shrunk, nullptr), shrunk));
          ensure(sum == 2, "a wrong sum");
          ok(pithCommDestroy(shrunk));
          ok(pithCommDestroy(child));
          ok(pithCommDestroy(comm));
        }) == "");
}
