// Jobs of about as many ranks as a process may open files.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr int of_the_application = 24;

// This process may open one file for each rank and 24 more, which the application has open.
void leave_one_for_each(const Rank& self) {
  const auto all = static_cast<rlim_t>(self.size + of_the_application);
  const rlimit both = {all, all};
  ensure(setrlimit(RLIMIT_NOFILE, &both) == 0, "no limit");
  for (int i = 0; i < of_the_application; ++i) ensure(dup(STDERR_FILENO) >= 0, "no descriptor");
}

void sum(const Rank& self, pithComm_t comm) {
  const float one = 1;
  float all = 0;
  ok(pithAllReduce(&one, &all, 1, pithFloat32, pithSum, comm, nullptr));
  ensure(all == static_cast<float>(self.size), "wrong sum");
}

// Something from each to each.
void exchange(const Rank& self, pithComm_t comm) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(self.size));
  std::vector<std::int32_t> in(out.size());
  std::iota(out.begin(), out.end(), self.rank * self.size);
  ok(pithAlltoAll(out.data(), in.data(), 1, pithInt32, comm, nullptr));
  for (int r = 0; r < self.size; ++r) {
    ensure(in[static_cast<std::size_t>(r)] == r * self.size + self.rank, "wrong exchange");
  }
}

void start_among_many(Rank& self, bool to_each) {
  leave_one_for_each(self);
  const Comm comm(self.join());
  sum(self, comm);
  if (to_each) exchange(self, comm);
}

Setup of(const char* transport, double limit_s) {
  Setup setup;
  setup.transport = transport;
  setup.limit_s = limit_s;
  setup.environment = {{"PITH_INIT_TIMEOUT", "600"}};
  return setup;
}

}  // namespace

TEST_CASE("ranks start that are almost as many as a process may open files", "[limits]") {
  constexpr int size = 120;  // of fewer some 100 descriptors that a process needs are too many
  for (const bool shm : {true, false}) {
    INFO(shm);
    // Over TCP a connection to each rank would be too many.
    CHECK(run(size, of(shm ? "shm" : "tcp", 120),
              [shm](Rank& self) { start_among_many(self, shm); }) == "");
  }
}

TEST_CASE("many ranks of a host have one TCP connection a pair", "[limits]") {
  constexpr int size = 40;
  CHECK(run(size, of("tcp", 120), [](Rank& self) {
          const Comm comm(self.join());
          sum(self, comm);
          self.meet();
          const std::filesystem::directory_iterator all("/proc/self/fd");
          const auto open = std::distance(begin(all), end(all));
          self.meet();
          // Others than those connections are fewer than two for each rank.
          ensure(open >= size && open < 3 * size, std::to_string(open) + " are open");
        }) == "");
}

TEST_CASE("a thousand ranks start where a process may open 1,024 files", "[thousand]") {
  for (const bool shm : {true, false}) {
    INFO(shm);
    CHECK(run(most_ranks, of(shm ? "shm" : "tcp", 1200),
              [shm](Rank& self) { start_among_many(self, shm); }) == "");
  }
}

// The two keep no descriptors for each other.
TEST_CASE("among many ranks of a host, one that dies or leaves is missed by any other",
          "[limits]") {
  constexpr int size = 70;
  constexpr int one = 3;
  constexpr int other = 8;
  for (const bool dies : {true, false}) {
    INFO(dies);
    Setup setup = of("shm", 120);
    setup.may_be_killed = true;
    CHECK(run_in_time(size, setup, [dies](Rank& self) {
            const Comm comm(self.join());
            sum(self, comm);
            self.meet();
            if (self.rank == one && dies) self.die();
            if (self.rank == one) return;
            if (self.rank == other) {
              float got = 0;
              const pithResult_t result = pithRecv(&got, 1, pithFloat32, one, comm, nullptr);
              if (dies) self.in_time(self.since_death_of(one), 1, "the call");
              fails(result, pithRemoteError, {"rank 3"});
              self.slot(other) = 1;
            }
            wait_until(
                [&] {
                  sleep_s(0.01);
                  return self.slot(other) == 1;
                },
                30);
          }) == "");
  }
}
