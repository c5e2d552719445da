// Processes that fork, and that end with a communicator still held.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

// Whether the child did not fail; what failed is on its error output.
bool passes(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void use_what_is_the_parents(pithComm_t comm) {
  float one = 1;
  float sum = 0;
  int ranks = 0;
  constexpr auto bad = pithInvalidArgument;
  fails(pithAllReduce(&one, &sum, 1, pithFloat32, pithSum, comm, nullptr), bad,
        {"pithAllReduce: comm was made before this process was forked"});
  fails(pithCommCount(comm, &ranks), bad, {"forked"});
  pithComm_t made = nullptr;
  fails(pithCommSplit(comm, 0, 0, &made, nullptr), bad, {"forked"});
  ensure(std::string_view(pithGetLastError(comm)).find("forked") != std::string_view::npos,
         "another message");
  ok(pithCommAbort(comm));
  ok(pithCommDestroy(comm));
}

// The parent's group, which is open, and its request.
void end_what_the_parent_began(pithRequest_t request) {
  int done = 0;
  fails(pithTest(request, &done), pithInvalidArgument, {"pithTest: request", "forked"});
  fails(pithWait(request), pithInvalidArgument, {"pithWait: request", "forked"});
  fails(pithGroupEnd(), pithInvalidUsage, {"pithGroupEnd: the group", "forked"});
  fails(pithGroupEnd(), pithInvalidUsage, {"without pithGroupStart"});
}

template <class Body>
void in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& failure) {
      std::fprintf(stderr, "child: %s\n", failure.what());
      _exit(1);
    }
    _exit(0);
  }
  ensure(passes(child), "the child failed");
}

// What a process keeps of groups to use it again is its own.
void sum_in_groups(pithComm_t comm, int size) {
  for (int turn = 0; turn < 3; ++turn) {
    std::array<float, 3> one = {1, 1, 1};
    std::array<float, 3> sum{};
    pithRequest_t request = nullptr;
    for (std::size_t i = 0; i < one.size(); ++i) {
      if (i < 2) ok(pithGroupStart());  // of the first alone, then of the others
      ok(pithAllReduce(&one[i], &sum[i], 1, pithFloat32, pithSum, comm, nullptr));
      if (i == 0) ok(pithGroupEndAsync(&request));
    }
    ok(pithGroupEnd());
    ok(pithWait(request));
    for (const float value : sum) ensure(value == static_cast<float>(size), "a wrong sum");
  }
}

void use_ones_own() {
  pithUniqueId id;
  ok(pithGetUniqueId(&id));
  pithComm_t comm = nullptr;
  ok(pithCommInitRank(&comm, 1, id, 0));
  float one = 1;
  float sum = 0;
  ok(pithAllReduce(&one, &sum, 1, pithFloat32, pithSum, comm, nullptr));
  ensure(sum == 1, "a wrong sum in the child");
  sum_in_groups(comm, 1);
  ok(pithCommDestroy(comm));
}

struct Holder {
  ~Holder() {
    if (comm && pithCommDestroy(comm) != pithSuccess) _exit(9);
  }
  pithComm_t comm = nullptr;
};

}  // namespace

TEST_CASE("a rank that has forked is killed, and its child lives on", "[failure]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            ok(pithBarrier(comm, nullptr));
            if (self.rank == 1) {
              const pid_t child = fork();
              if (child == 0) {
                sleep(60);
                _exit(0);
              }
              self.slot(1) = static_cast<std::uint64_t>(child);
              sleep_s(0.2);
              self.slot(1, 1) = static_cast<std::uint64_t>(now_s() * 1e6);
              raise(SIGKILL);
            }
            const pithResult_t result = pithBarrier(comm, nullptr);
            const double delay = now_s() - static_cast<double>(self.slot(1, 1)) / 1e6;
            self.slot(self.rank, 2) = 1;
            if (self.rank == 0) {
              wait_until([&] { return self.slot(2, 2) == 1; });
              ensure(kill(static_cast<pid_t>(self.slot(1)), SIGKILL) == 0, "the child is gone");
            }
            fails(result, pithRemoteError, {"rank 1"});
            ensure(delay < 1.5, "heard of it after " + std::to_string(delay) + " s");
            ok(pithCommDestroy(comm));
          }) == "");
  }
}

TEST_CASE("a forked child leaves its parent's communicator alone", "[failure]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    const bool own = setup.transport != "ucx";  // which does not start anew in a forked child
    CHECK(run(2, setup, [own](Rank& self) {
            pithComm_t comm = self.join();
            sum_in_groups(comm, self.size);
            in_child([&] {
              use_what_is_the_parents(comm);
              if (own) use_ones_own();
            });
            std::array<float, 2> one = {1, 1};
            std::array<float, 2> sum{};
            pithRequest_t request = nullptr;
            for (std::size_t i = 0; i < 2; ++i) {
              ok(pithGroupStart());
              ok(pithAllReduce(&one[i], &sum[i], 1, pithFloat32, pithSum, comm, nullptr));
              if (i == 0) ok(pithGroupEndAsync(&request));
            }
            in_child([&] {
              end_what_the_parent_began(request);
              if (own) use_ones_own();
            });
            ok(pithGroupEnd());
            ok(pithWait(request));
            ensure(sum[0] == 2 && sum[1] == 2, "a wrong sum after a fork");
            sum_in_groups(comm, self.size);
            ok(pithCommDestroy(comm));
          }) == "");
  }
}

TEST_CASE("a global that was made first destroys its communicator last", "[end]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run(2, setup, [](Rank& self) {
            static Holder holder;
            holder.comm = self.join();
            float one = 1;
            float sum = 0;
            pithRequest_t request = nullptr;
            ok(pithGroupStart());
            ok(pithAllReduce(&one, &sum, 1, pithFloat32, pithSum, holder.comm, nullptr));
            ok(pithGroupEndAsync(&request));
            ok(pithWait(request));
          }) == "");
  }
}
