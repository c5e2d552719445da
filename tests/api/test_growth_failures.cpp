// All that can go wrong while ranks join a communicator.
#include <csignal>
#include <string>
#include <thread>

#include "catch.hpp"
#include "growth.hpp"

using namespace ranks;

namespace {

// Within this time ranks hear of a death or a disagreement.
constexpr double limit_s = 1;

// Another attempt, after one that failed.
void grows_now(Rank& self, pithComm_t comm, int which = 1) {
  const pithUniqueId id = shared_id(self, comm, 0, which);
  pithComm_t grown = nullptr;
  ok(grow(self, comm, self.size, id, &grown));
  works(grown, self.rank, self.size);
  ok(pithCommDestroy(grown));
}

void wait_and_die(double seconds) {
  std::thread([seconds] {
    sleep_s(seconds);
    raise(SIGKILL);
  }).detach();
}

}  // namespace

TEST_CASE("members that disagree on a growth all hear of it, and so do those that join",
          "[growth]") {
  for (const Setup& setup : with_threads(some_processes())) {
    INFO(name_of(setup));
    CHECK(run_in_time(3, setup, [](Rank& self) {
            const Comm comm(members_of(self, 2));
            const pithUniqueId id = shared_id(self, comm);
            pithComm_t made = nullptr;
            self.meet();
            const double start = now_s();
            const std::string both = "rank 1 grows the communicator to 4 ranks, rank 0 to 3";
            if (comm) {
              fails(grow(self, comm, self.rank == 1 ? 4 : 3, id, &made), pithInvalidUsage, {both});
            } else {
              fails(grow(self, comm, 3, id, &made), pithRemoteError, {both});
            }
            self.in_time(now_s() - start, limit_s, "to hear of it");
            ensure(!made, "a communicator was made");
            if (comm) {
              fails(pithCommGrow(comm, 3, nullptr, -1, &made, nullptr), pithInvalidUsage,
                    {"no rank gives an id"});
              works(comm, self.rank, 2);
            }
            grows_now(self, comm);
          }) == "");
  }
}

TEST_CASE("two different ids for one growth are an error", "[growth]") {
  for (const Setup& setup : with_threads(some_processes())) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            const Comm comm(members_of(self, 2));
            const pithUniqueId id = shared_id(self, comm, 0);
            const pithUniqueId other = shared_id(self, comm, 1, 1);
            pithComm_t made = nullptr;
            if (comm) {
              fails(pithCommGrow(comm, 3, self.rank == 0 ? &id : &other, -1, &made, nullptr),
                    pithInvalidUsage, {"rank 0 and rank 1 give different ids"});
            } else {
              fails(grow(self, comm, 3, id, &made), pithRemoteError, {"different ids"});
            }
            grows_now(self, comm, 2);
          }) == "");
  }
}

TEST_CASE("newcomers that disagree with the members fail, and all hear of it", "[growth]") {
  for (const Setup& setup : with_threads(some_processes())) {
    for (const bool twice : {false, true}) {
      INFO(name_of(setup) << (twice ? ", one rank twice" : ", another number of ranks"));
      CHECK(run(4, setup, [twice](Rank& self) {
              const Comm comm(members_of(self, 2));
              const pithUniqueId id = shared_id(self, comm);
              pithComm_t made = nullptr;
              const int nranks = self.rank == 3 && !twice ? 5 : 4;
              const std::string what = twice ? "rank 2 joined twice" : "nranks";
              if (comm) {
                fails(grow(self, comm, nranks, id, &made), pithRemoteError, {what});
                works(comm, self.rank, 2);
              } else {
                fails(pithCommGrow(nullptr, nranks, &id, twice ? 2 : self.rank, &made, nullptr),
                      pithRemoteError, {what});
              }
              self.meet();
              grows_now(self, comm);
            }) == "");
    }
  }
}

TEST_CASE("a rank that does not come is named", "[growth]") {
  for (const Setup& setup : some_processes("2")) {
    INFO(name_of(setup));
    CHECK(run(4, setup, [](Rank& self) {
            const Comm comm(members_of(self, 2));
            const pithUniqueId id = shared_id(self, comm);
            pithComm_t made = nullptr;
            if (self.rank != 3) {
              fails(grow(self, comm, 4, id, &made), pithRemoteError, {"rank 3 did not join"});
            }
            self.meet();
            // Who is late hears why.
            if (self.rank == 3) {
              fails(grow(self, comm, 4, id, &made), pithRemoteError, {"rank 3 did not join"});
            }
            self.meet();
            grows_now(self, comm);
          }) == "");
  }
}

TEST_CASE("without the id's secret nobody joins", "[growth]") {
  for (const Setup& setup : some_processes()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            const Comm comm(members_of(self, 2));
            const pithUniqueId id = shared_id(self, comm);
            pithComm_t made = nullptr;
            if (!comm) {
              pithUniqueId wrong = id;
              wrong.internal[10] ^= 1;
              fails(grow(self, comm, 3, wrong, &made), pithRemoteError, {"id is of another job"});
              wrong = id;
              std::memset(wrong.internal + 64, 0, sizeof wrong.internal - 64);
              fails(grow(self, comm, 3, wrong, &made), pithInvalidArgument, {"all 128 bytes"});
            }
            ok(grow(self, comm, 3, id, &made));
            const Comm grown(made);
            works(grown, self.rank, 3);
          }) == "");
  }
}

TEST_CASE("a member that dies before it grows is named on all ranks", "[growth]") {
  for (const Setup& setup : some_processes()) {
    INFO(name_of(setup));
    CHECK(run_in_time(4, setup, [](Rank& self) {
            const Comm comm(members_of(self, 3));
            const pithUniqueId id = shared_id(self, comm);
            self.meet();
            if (self.rank == 1) {
              sleep_s(0.3);
              self.die();
            }
            pithComm_t made = nullptr;
            fails(grow(self, comm, 4, id, &made), pithRemoteError, {"rank 1"});
            self.in_time(self.since_death_of(1), limit_s, "to hear of it");
          }) == "");
  }
}

TEST_CASE("a member that dies while the others wait for those that join is named", "[growth]") {
  for (const Setup& setup : some_processes()) {
    for (const int victim : {0, 1, 2}) {
      INFO(name_of(setup) << ", victim " << victim);
      CHECK(run_in_time(5, setup, [victim](Rank& self) {
              const Comm comm(members_of(self, 3));
              const pithUniqueId id = shared_id(self, comm);
              self.meet();
              pithComm_t made = nullptr;
              if (self.rank == victim) wait_and_die(0.5);
              if (self.rank == 4) {  // too late
                sleep_s(1.5);
                const std::string_view why =
                    victim == 0 ? "cannot reach the bootstrap root" : "rank ";
                fails(grow(self, comm, 5, id, &made), pithRemoteError, {why});
                self.slot(4) = 1;
                return;
              }
              const double start = now_s();
              ensure(grow(self, comm, 5, id, &made) == pithRemoteError, "no error");
              const std::string text = pithGetLastError(nullptr);
              const bool named = text.find("rank " + std::to_string(victim)) != text.npos;
              const bool is_root = text.find("the process that made the id") != text.npos;
              ensure(named || (is_root && victim == 0), text);
              self.in_time(now_s() - start - 0.5, limit_s, "to hear of it");
              wait_until([&] { return self.slot(4) == 1; });  // this may be the root's process
            }) == "");
    }
  }
}

TEST_CASE("a newcomer that dies is named, and the members go on", "[growth]") {
  for (const Setup& setup : some_processes()) {
    INFO(name_of(setup));
    CHECK(run_in_time(4, setup, [](Rank& self) {
            const Comm comm(members_of(self, 2));
            const pithUniqueId id = shared_id(self, comm);
            pithComm_t made = nullptr;
            if (self.rank == 3) wait_and_die(0.3);
            if (self.rank == 2) sleep_s(0.6);
            fails(grow(self, comm, 4, id, &made), pithRemoteError, {"rank 3 went away"});
            if (comm) works(comm, self.rank, 2);
          }) == "");
  }
}

TEST_CASE("a rank that aborts ends the growth everywhere", "[growth]") {
  for (const Setup& setup : with_threads(some_processes())) {
    for (const int aborting : {0, 1}) {
      INFO(name_of(setup) << ", rank " << aborting << " aborts");
      CHECK(run_in_time(4, setup, [aborting](Rank& self) {
              pithComm_t comm = members_of(self, 2);
              const pithUniqueId id = shared_id(self, comm);
              pithComm_t made = nullptr;
              self.meet();
              const double start = now_s();
              const std::string why = "rank " + std::to_string(aborting) + " aborted";
              if (self.rank == aborting) {
                std::jthread soon([comm] {
                  sleep_s(0.5);
                  ok(pithCommAbort(comm));
                });
                fails(grow(self, comm, 4, id, &made), pithRemoteError, {why});
                return;
              }
              if (self.rank == 3) return;
              fails(grow(self, comm, 4, id, &made), pithRemoteError, {why});
              self.in_time(now_s() - start - 0.5, limit_s, "to hear of it");
              ok(pithCommDestroy(comm));
            }) == "");
    }
  }
}

TEST_CASE("a growth on one rank and another call on another one are told apart", "[growth]") {
  for (const Setup& setup : with_threads(some_processes())) {
    for (const bool splits : {false, true}) {
      INFO(name_of(setup) << (splits ? ", a split" : ", a sum"));
      CHECK(run(3, setup, [splits](Rank& self) {
              const Comm comm(members_of(self, 2));
              const pithUniqueId id = shared_id(self, comm);
              pithComm_t made = nullptr;
              std::int64_t sum = 1;
              const std::string_view other = splits ? "split" : "allreduce";
              if (self.rank == 0) {
                fails(grow(self, comm, 3, id, &made), pithInvalidUsage, {"grow", other});
              } else if (self.rank == 2) {
                fails(grow(self, comm, 3, id, &made), pithRemoteError, {"grow", other});
              } else if (splits) {
                fails(pithCommSplit(comm, 0, 0, &made, nullptr), pithInvalidUsage, {"grow", other});
              } else {
                fails(pithAllReduce(&sum, &sum, 1, pithInt64, pithSum, comm, nullptr),
                      pithInvalidUsage, {"grow", other});
              }
            }) == "");
    }
  }
}

TEST_CASE("a member that is interrupted while it waits to grow revokes the communicator",
          "[growth]") {
  for (const Setup& setup : with_threads(some_processes())) {
    for (const bool members_come : {false, true}) {
      INFO(name_of(setup) << (members_come ? ", waits for newcomers" : ", waits for a member"));
      CHECK(run_in_time(4, setup, [members_come](Rank& self) {
              const Comm comm(members_of(self, 3));
              const pithUniqueId id = shared_id(self, comm);
              pithComm_t made = nullptr;
              self.meet();
              if (self.rank == 1) {
                const auto ask = [](void* asked) -> int {
                  return ++*static_cast<int*>(asked) == 10;
                };
                int asked = 0;
                ok(pithSetInterrupt(ask, &asked));
                fails(grow(self, comm, 4, id, &made), pithRemoteError, {"rank 1"});
                ok(pithSetInterrupt(nullptr, nullptr));
                self.slot(1) = 1;
              }
              if (self.rank == 3 || (self.rank == 0 && !members_come)) {
                wait_until([&] { return self.slot(1) == 1; });
              }
              const double start = now_s();
              if (self.rank != 1) {
                fails(grow(self, comm, 4, id, &made), pithRemoteError, {"rank 1"});
              }
              if (self.rank != 2) self.in_time(now_s() - start, 5, "to hear of it");
              if (comm) fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 1"});
              self.meet();
            }) == "");
    }
  }
}

TEST_CASE("a member that is late for the newcomers hears why, and an id serves one growth",
          "[growth]") {
  for (const Setup& setup : some_processes("1")) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            const Comm comm(members_of(self, 2));
            pithUniqueId id = shared_id(self, comm);
            pithComm_t made = nullptr;
            if (comm) wait_until([&] { return self.slot(2) == 1; });
            fails(grow(self, comm, 3, id, &made), pithRemoteError, {"did not join within 1 s"});
            self.slot(2) = 1;
            self.meet();
            id = shared_id(self, comm, 0, 1);
            ok(grow(self, comm, 3, id, &made));
            works(made, self.rank, 3);
            self.meet();
            pithComm_t again = nullptr;
            ensure(grow(self, comm, 3, id, &again) == pithRemoteError, "an id was used twice");
            if (comm) works(comm, self.rank, 2);
            ok(pithCommDestroy(made));
          }) == "");
  }
}
