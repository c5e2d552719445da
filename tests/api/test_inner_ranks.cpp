// Deaths of inner ranks of the control tree, between processes. A tree of few ranks has inner ones
// because each has two children here at most, and not 32: the linker hands us the construction of
// the library's control planes (ld --wrap).
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "catch.hpp"
#include "control/control_plane.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

std::atomic<int> narrow_planes{0};

}  // namespace

// pith::ControlPlane::ControlPlane(const ControlOptions&, ControlWire&)
extern "C" {
void __real__ZN4pith12ControlPlaneC1ERKNS_14ControlOptionsERNS_11ControlWireE(
    void* plane, const pith::ControlOptions& options, pith::ControlWire& wire);
void __wrap__ZN4pith12ControlPlaneC1ERKNS_14ControlOptionsERNS_11ControlWireE(
    void* plane, const pith::ControlOptions& options, pith::ControlWire& wire) {
  pith::ControlOptions narrow = options;
  narrow.fanout = 2;
  ++narrow_planes;
  __real__ZN4pith12ControlPlaneC1ERKNS_14ControlOptionsERNS_11ControlWireE(plane, narrow, wire);
}
}

namespace {

constexpr double limit_s = 1;
constexpr double timeout_s = 2;

using Victims = std::vector<int>;

bool is_one_of(const Victims& victims, int rank) {
  return std::find(victims.begin(), victims.end(), rank) != victims.end();
}

std::string name_of(const Setup& setup, const Victims& victims) {
  std::string name = ranks::name_of(setup) + ", victims";
  for (const int victim : victims) name.append(" ").append(std::to_string(victim));
  return name;
}

double since_last_death(Rank& self, const Victims& victims) {
  double least = 1e9;
  for (const int victim : victims) least = std::min(least, self.since_death_of(victim));
  return std::max(0.0, least);
}

// Some wait for others, that is for messages, and some only ask: they hear of it by the tree alone.
void hear_of_it(Rank& self, pithComm_t comm, bool calls) {
  pithResult_t result = pithSuccess;
  std::int64_t sum = self.rank;
  wait_until([&] {
    if (calls) {
      result = pithAllReduce(&sum, &sum, 1, pithInt64, pithMax, comm, nullptr);
    } else {
      ok(pithCommGetAsyncError(comm, &result));
      sleep_s(0.001);
    }
    return result != pithSuccess;
  });
  ensure(result == pithRemoteError, "code " + std::to_string(result));
}

// Twice, so that the tree of those that are left is used as well.
void sum_is_right(pithComm_t comm, int ranks) {
  for (int turn = 0; turn < 2; ++turn) {
    const std::int64_t one = 1;
    std::int64_t sum = 0;
    ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, comm, nullptr));
    ensure(sum == ranks, "a wrong sum: " + std::to_string(sum));
    pithComm_t half = nullptr;
    ok(pithCommSplit(comm, 0, 0, &half, nullptr));
    ok(pithCommDestroy(half));
  }
}

void check_deaths(const Setup& setup, int size, const Victims& victims, bool calls) {
  INFO(name_of(setup, victims) << " of " << size << (calls ? ", in calls" : ", outside"));
  CHECK(run_in_time(size, setup, [&](Rank& self) {
          const Comm comm(self.join());
          ensure(narrow_planes == 1, "this tree has no inner ranks");
          ok(pithBarrier(comm, nullptr));
          self.meet();
          if (is_one_of(victims, self.rank)) self.die();
          hear_of_it(self, comm, calls);
          self.in_time(since_last_death(self, victims), limit_s, "to hear of the death");
          const std::string text = pithGetLastError(comm);
          ensure(std::any_of(victims.begin(), victims.end(),
                             [&](int victim) {
                               return text.find("rank " + std::to_string(victim)) !=
                                      std::string::npos;
                             }),
                 "\"" + text + "\" names no victim");
          pithComm_t next = nullptr;
          const double start = now_s();
          ok(pithCommShrink(comm, nullptr, 0, &next, nullptr, PITH_SHRINK_DEFAULT));
          self.in_time(now_s() - start, limit_s, "the shrink");
          const Comm shrunk(next);
          sum_is_right(shrunk, size - static_cast<int>(victims.size()));
          int n = 16;
          Victims failed(16, -1);
          ok(pithCommGetFailed(comm, failed.data(), &n));
          failed.resize(static_cast<std::size_t>(n));
          ensure(failed == victims, "others are said to have died");
        }) == "");
}

std::vector<Setup> setups(double timeout = 0) {
  std::vector<Setup> links = between_processes();
  for (Setup& setup : links) {
    if (timeout > 0) setup.environment = {{"PITH_TIMEOUT", std::to_string(timeout)}};
  }
  return links;
}

const bool all = std::getenv("PITH_TEST_FULL") != nullptr;

}  // namespace

// Of 7 ranks 1 has children 3 and 4, 2 has 5 and 6; of 9 ranks 3 has 7 and 8, too.
TEST_CASE("inner ranks of the control tree are killed", "[inner]") {
  const std::vector<Victims> of_seven = {{1}, {0, 1}, {2, 6}};
  for (const Setup& setup : setups()) {
    if (setup.transport == "ucx" && !all) continue;  // the tree is the same
    for (const Victims& victims : of_seven) check_deaths(setup, 7, victims, all);
    if (all) {
      for (const Victims& victims : of_seven) check_deaths(setup, 7, victims, false);
    }
    check_deaths(setup, 9, {1, 3}, true);
    check_deaths(setup, 9, {0, 1, 2}, false);
  }
}

TEST_CASE("an inner rank of the control tree is stopped, and left out", "[inner]") {
  constexpr int size = 5;
  for (const Setup& setup : setups(timeout_s)) {
    if (setup.transport != "tcp" && !all) continue;
    INFO(ranks::name_of(setup));
    CHECK(run_in_time(size, setup, [](Rank& self) {
            Comm comm(self.join());
            ok(pithBarrier(comm, nullptr));
            if (self.rank == 1) self.slot(1) = static_cast<std::uint64_t>(getpid());
            self.meet();
            if (self.rank == 1) {
              raise(SIGSTOP);
              const double woken = now_s();
              hear_of_it(self, comm, true);
              self.in_time(now_s() - woken, limit_s, "the one that woke up: to hear of it");
              return;
            }
            const double start = now_s();
            hear_of_it(self, comm, true);
            const double took = now_s() - start;
            ensure(took > 0.9 * timeout_s, "given up after " + std::to_string(took) + " s");
            self.in_time(took, timeout_s + limit_s, "to give it up");
            int excluded = 1;
            pithComm_t next = nullptr;
            const double shrinks = now_s();
            ok(pithCommShrink(comm, &excluded, 1, &next, nullptr, PITH_SHRINK_DEFAULT));
            // A parent that is left out is given half the timeout to answer.
            self.in_time(now_s() - shrinks, timeout_s / 2 + limit_s, "the shrink");
            sum_is_right(next, size - 1);
            ok(pithCommDestroy(next));
            const double ends = now_s();
            ok(pithCommDestroy(comm.release()));
            self.in_time(now_s() - ends, 1.5, "Destroy beside one that has stopped");
            self.slot(self.rank, 1) = 1;
            if (self.rank != 0) return;
            wait_until([&] {
              return self.slot(2, 1) != 0 && self.slot(3, 1) != 0 && self.slot(4, 1) != 0;
            });
            kill(static_cast<pid_t>(self.slot(1)), SIGCONT);
          }) == "");
  }
}
