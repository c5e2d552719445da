// Start-up where the process may not have all it needs: descriptors, threads, memory.
#include <sys/resource.h>
#include <unistd.h>

#include <array>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr int ranks_here = 16;

void limit(decltype(RLIMIT_NOFILE) what, rlim_t soft, rlim_t hard) {
  const rlimit both = {soft, hard};
  ensure(setrlimit(what, &both) == 0, "no limit");
}

Setup of(const char* transport, Way way = Way::processes) {
  Setup setup;
  setup.way = way;
  setup.transport = transport;
  setup.limit_s = 60;
  return setup;
}

void sum(Rank& self, pithComm_t comm) {
  const float one = 1;
  float all = 0;
  ok(pithAllReduce(&one, &all, 1, pithFloat32, pithSum, comm, nullptr));
  ensure(all == static_cast<float>(self.size), "wrong sum");
}

// Every rank, soon, and all name the same cause.
void fails_at_once(Rank& self, std::initializer_list<std::string_view> words) {
  const pithUniqueId id = self.id();
  self.meet();
  const double begun = now_s();
  pithComm_t comm = nullptr;
  const pithResult_t result = pithCommInitRank(&comm, self.size, id, self.rank);
  self.in_time(now_s() - begun, 3, "the start");
  ensure(result != pithSuccess, "no error");
  fails(result, result, words);
  self.meet();  // who is told last is told by rank 0's process
}

}  // namespace

TEST_CASE("the soft limit of descriptors is raised where the hard one allows it", "[limits]") {
  for (const Way way : {Way::processes, Way::threads}) {
    for (const char* transport : {"tcp", "shm"}) {
      const rlim_t soft = GENERATE(40, 64, 96);
      CAPTURE(transport, soft, static_cast<int>(way));
      const Setup setup = of(transport, way);
      CHECK(run(ranks_here, setup, [&](Rank& self) {
              if (way == Way::processes || self.rank == 0) limit(RLIMIT_NOFILE, soft, 4096);
              self.meet();
              const Comm comm(self.join());
              sum(self, comm);
            }) == "");
    }
  }
}

TEST_CASE("ranks have fewer TCP connections where there are few descriptors", "[limits]") {
  const rlim_t hard = GENERATE(64, 96);
  CAPTURE(hard);
  CHECK(run(ranks_here, of("tcp"), [&](Rank& self) {
          limit(RLIMIT_NOFILE, hard, hard);
          const Comm comm(self.join());
          sum(self, comm);
        }) == "");
}

TEST_CASE("too few descriptors are an error on all ranks at once", "[limits]") {
  CHECK(run_in_time(ranks_here, of("tcp"), [](Rank& self) {
          limit(RLIMIT_NOFILE, 28, 28);
          fails_at_once(self, {"rank 0", "limit of ", "28"});
        }) == "");
  CHECK(run_in_time(ranks_here, of("shm"), [](Rank& self) {
          if (self.rank == 5) limit(RLIMIT_NOFILE, 24, 24);
          fails_at_once(self, {"rank 5", "24"});
        }) == "");
  CHECK(run_in_time(ranks_here, of("tcp", Way::threads), [](Rank& self) {
          if (self.rank == 0) limit(RLIMIT_NOFILE, 96, 96);
          self.meet();
          fails_at_once(self, {"rank ", "limit of ", "96"});
        }) == "");
}

TEST_CASE("no room for ranks at the place where they meet", "[limits]") {
  CHECK(run_in_time(ranks_here, of("tcp"), [](Rank& self) {
          if (self.rank == 0) limit(RLIMIT_NOFILE, 16, 16);
          fails_at_once(self, {"limit of open files is 16"});
        }) == "");
}

// The descriptors are used up at any point of the start, and whoever fails first ends at once.
TEST_CASE("no room for ranks that start by variables", "[limits]") {
  // Below the ports that the system gives to connections.
  const std::string root = "127.0.0.1:" + std::to_string(20'000 + getpid() % 9'000);
  CHECK(run_in_time(ranks_here, of("tcp"), [&](Rank& self) {
          setenv("PITH_RANK", std::to_string(self.rank).c_str(), 1);
          setenv("PITH_SIZE", std::to_string(self.size).c_str(), 1);
          setenv("PITH_ROOT", root.c_str(), 1);
          limit(RLIMIT_NOFILE, 20, 20);
          self.meet();
          if (self.rank > 8) sleep_s(0.3);
          const double begun = now_s();
          pithComm_t comm = nullptr;
          const pithResult_t result = pithCommInitEnv(&comm);
          self.in_time(now_s() - begun, 3, "the start");
          ensure(result != pithSuccess, "no error");
          fails(result, result, {"the limit of open files is 20"});
        }) == "");
}

TEST_CASE("a split that lacks descriptors fails on all its ranks", "[limits]") {
  CHECK(run_in_time(ranks_here, of("tcp"), [](Rank& self) {
          const Comm comm(self.join());
          self.meet();
          const int next = dup(STDERR_FILENO);
          close(next);
          const auto room = static_cast<rlim_t>(next + 6);
          if (self.rank == 7) limit(RLIMIT_NOFILE, room, room);
          self.meet();
          const double begun = now_s();
          pithComm_t child = nullptr;
          const pithResult_t result = pithCommSplit(comm, 0, self.rank, &child, nullptr);
          self.in_time(now_s() - begun, 3, "the split");
          ensure(result != pithSuccess, "no error");
          fails(result, result, {"rank 7"});
          sum(self, comm);
        }) == "");
}

#if defined(PITH_UCX)
// Where UCX itself finds too few it ends the process.
TEST_CASE("descriptors for UCX", "[limits]") {
  CHECK(run(8, of("ucx"), [](Rank& self) {
          limit(RLIMIT_NOFILE, 40, 4096);
          const Comm comm(self.join());
          sum(self, comm);
        }) == "");
  const rlim_t hard = GENERATE(28, 36, 40);
  CAPTURE(hard);
  CHECK(run_in_time(8, of("ucx"), [&](Rank& self) {
          limit(RLIMIT_NOFILE, hard, hard);
          fails_at_once(self, {"rank ", std::to_string(hard)});
        }) == "");
}
#endif

// Whoever may do anything is not bound by this limit.
TEST_CASE("a thread that cannot be started is told to all", "[limits]") {
  CHECK(run_in_time(4, of("tcp"), [](Rank& self) {
          if (self.rank == 2) {
            constexpr uid_t nobody = 65534;
            ensure(geteuid() != 0 || setuid(nobody) == 0, "still root");
            limit(RLIMIT_NPROC, 1, 1);
          }
          fails_at_once(self, {"rank 2", "a thread cannot be started"});
        }) == "");
}

TEST_CASE("memory that runs out in the start is told to all", "[limits]") {
  CHECK(run_in_time(4, of("shm"), [](Rank& self) {
          const pithUniqueId id = self.id();
          self.meet();
          if (self.rank == 2) limit(RLIMIT_AS, 8 << 20, 8 << 20);
          pithComm_t comm = nullptr;
          const double begun = now_s();
          const pithResult_t result = pithCommInitRank(&comm, self.size, id, self.rank);
          self.in_time(now_s() - begun, 3, "the start");
          ensure(result != pithSuccess, "no error");
          fails(result, result, {"rank 2"});
        }) == "");
}

TEST_CASE("descriptors that run out when ranks connect on demand", "[limits]") {
  Setup setup = of("tcp");
  setup.environment = {{"PITH_CONNECT_RANKS", "1"}};
  CHECK(run_in_time(ranks_here, setup, [](Rank& self) {
          const Comm comm(self.join());
          self.meet();
          const int next = dup(STDERR_FILENO);
          close(next);
          const auto room = static_cast<rlim_t>(next + 2);
          if (self.rank == 7) limit(RLIMIT_NOFILE, room, room);
          self.meet();
          std::array<int, ranks_here> out{};
          std::array<int, ranks_here> in{};
          const double begun = now_s();
          pithResult_t result = pithAlltoAll(out.data(), in.data(), 1, pithInt32, comm, nullptr);
          // Ranks that had all they needed of rank 7 have succeeded.
          if (result == pithSuccess) result = pithBarrier(comm, nullptr);
          self.in_time(now_s() - begun, 5, "the call");
          ensure(result != pithSuccess, "no error");
          if (self.rank == 7) fails(result, result, {"limit of open files"});
        }) == "");
}
