// Processes that end after their last call and destroy nothing, in order or at once, as programs do
// every day: nobody else's call fails unless it needs them.
#include <unistd.h>

#include <csignal>
#include <vector>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

enum class End { by_return, by_exit, at_once };

// At once: nothing of the library runs any more.
void end(End how) {
  forgo_leak_check();
  if (how == End::by_exit) exit(0);
  if (how == End::at_once) _exit(0);
}

float sum_of_ones(pithComm_t comm, std::size_t count) {
  std::vector<float> ones(count, 1);
  std::vector<float> sum(count);
  ok(pithAllReduce(ones.data(), sum.data(), count, pithFloat32, pithSum, comm, nullptr));
  for (const float value : sum) ensure(value == sum.front(), "sums differ");
  return sum.front();
}

std::vector<int> failed_of(pithComm_t comm) {
  std::vector<int> ranks(most_ranks);
  int n = most_ranks;
  ok(pithCommGetFailed(comm, ranks.data(), &n));
  ranks.resize(static_cast<std::size_t>(n));
  return ranks;
}

pithResult_t async_error_of(pithComm_t comm) {
  pithResult_t result = pithSuccess;
  ok(pithCommGetAsyncError(comm, &result));
  return result;
}

// Ranks that are processes, and threads of one whose communicators connect as processes' do.
std::vector<Setup> all_setups() {
  std::vector<Setup> setups = every_link();
  setups.push_back({.way = Way::threads, .transport = "tcp", .environment = {}});
  setups.push_back({.transport = "tcp", .environment = {{"PITH_ENCRYPT", "1"}}});
  return setups;
}

}  // namespace

TEST_CASE("whoever ends after the last call fails nobody's", "[end]") {
  for (const Setup& setup : all_setups()) {
    for (const End how : {End::by_return, End::by_exit, End::at_once}) {
      // A thread that ends its process ends all its ranks.
      if (setup.way != Way::processes && how != End::by_return) continue;
      for (const std::size_t count : {1, 300'000}) {
        // UCX's credits lie unread in a process that ends at once, so that the kernel resets its
        // connections, and UCX drops what it has not read of one that is reset.
        if (setup.transport == "ucx" && how == End::at_once && count > 1) continue;
        INFO(name_of(setup) << ", end " << static_cast<int>(how) << ", " << count << " elements");
        for (int turn = 0; turn < 3; ++turn) {
          REQUIRE(run(8, setup, [how, count](Rank& self) {
                    ensure(sum_of_ones(self.join(), count) == 8, "a wrong sum");
                    end(how);
                  }) == "");
        }
      }
    }
  }
}

// The root of a broadcast need not wait for anybody.
TEST_CASE("what a rank has sent before it ended in order comes to who asks later", "[end]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            forgo_leak_check();
            pithComm_t comm = self.join();
            ok(pithBarrier(comm, nullptr));
            // The other one may have ended, too, by then.
            if (self.rank != 0) wait_until([&] { return !failed_of(comm).empty(); });
            std::vector<float> values(1000, self.rank == 0 ? 3.0F : 0.0F);
            ok(pithBcast(values.data(), values.size(), pithFloat32, 0, comm, nullptr));
            for (const float value : values) ensure(value == 3, "a wrong value");
          }) == "");
  }
}

TEST_CASE("a call that needs a rank whose process has ended names it within a second", "[end]") {
  for (const Setup& setup : between_processes()) {
    for (const End how : {End::by_exit, End::at_once}) {
      INFO(name_of(setup) << ", end " << static_cast<int>(how));
      CHECK(run_in_time(4, setup, [how](Rank& self) {
              pithComm_t comm = self.join();
              ensure(sum_of_ones(comm, 10) == 4, "a wrong sum");
              self.meet();
              if (self.rank == 2) {
                self.slot(2) = static_cast<std::uint64_t>(now_s() * 1e6);
                end(how);
              }
              const pithResult_t result = pithBarrier(comm, nullptr);
              const double delay = now_s() - static_cast<double>(self.slot(2)) / 1e6;
              fails(result, pithRemoteError, {"rank 2"});
              self.in_time(delay, 1, "the error");
              ensure(failed_of(comm) == std::vector<int>{2}, "others are said to have failed");
              pithComm_t smaller = nullptr;
              ok(pithCommShrink(comm, nullptr, 0, &smaller, nullptr, PITH_SHRINK_DEFAULT));
              ensure(sum_of_ones(smaller, 10) == 3, "a wrong sum of the survivors");
              ok(pithCommDestroy(smaller));
              ok(pithCommDestroy(comm));
            }) == "");
    }
  }
}

TEST_CASE("an idle rank that asks hears of a death, and not of an end in order", "[end]") {
  for (const Setup& setup : between_processes()) {
    for (const bool in_order : {true, false}) {
      INFO(name_of(setup) << (in_order ? ", in order" : ", killed"));
      CHECK(run(3, setup, [in_order](Rank& self) {
              pithComm_t comm = self.join();
              ensure(sum_of_ones(comm, 10) == 3, "a wrong sum");
              self.meet();
              if (self.rank == 1) in_order ? end(End::by_exit) : self.die();
              wait_until([&] { return failed_of(comm) == std::vector<int>{1}; });
              if (in_order) {
                ensure(async_error_of(comm) == pithSuccess, "an end in order is an error");
              } else {
                wait_until([&] { return async_error_of(comm) == pithRemoteError; });
                // Though the two that live could do it alone.
                float value = 1;
                const pithResult_t begun = self.rank == 0
                                               ? pithSend(&value, 1, pithFloat32, 2, comm, nullptr)
                                               : pithRecv(&value, 1, pithFloat32, 0, comm, nullptr);
                fails(begun, pithRemoteError, {"rank 1"});
              }
              ok(pithCommDestroy(comm));
            }) == "");
    }
  }
}

// Rank 0 waits for rank 1 alone, which goes on without that call.
TEST_CASE("a shrink after a death frees those who are still in a call", "[end]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            ensure(sum_of_ones(comm, 10) == 3, "a wrong sum");
            if (self.rank == 2) {
              wait_until([&] { return self.slot(0) == 1; });
              sleep_s(0.1);
              self.die();
            }
            if (self.rank == 0) {
              self.slot(0) = 1;
              float value = 0;
              fails(pithRecv(&value, 1, pithFloat32, 1, comm, nullptr), pithRemoteError,
                    {"rank 2"});
            } else {
              wait_until([&] { return failed_of(comm) == std::vector<int>{2}; });
            }
            pithComm_t smaller = nullptr;
            ok(pithCommShrink(comm, nullptr, 0, &smaller, nullptr, PITH_SHRINK_DEFAULT));
            ensure(sum_of_ones(smaller, 10) == 2, "a wrong sum of the survivors");
            ok(pithCommDestroy(smaller));
            ok(pithCommDestroy(comm));
          }) == "");
  }
}

// Rank 2 may compute for long before it comes to the call, and would be refused there.
TEST_CASE("who waits for a rank that a death keeps from calling hears of it in time", "[end]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run_in_time(4, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            ensure(sum_of_ones(comm, 10) == 4, "a wrong sum");
            self.meet();
            if (self.rank == 3) {
              sleep_s(0.1);
              self.die();
            }
            if (self.rank == 2) sleep_s(3);
            fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 3"});
            if (self.rank < 2) self.in_time(self.since_death_of(3), 1, "the error");
            ok(pithCommDestroy(comm));
          }) == "");
  }
}
