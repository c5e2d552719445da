// Ranks that die or give up: the others hear of it at once, and nothing stays behind.
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "catch.hpp"
#include "ranks.hpp"
#include "tests/sanitized.hpp"

using namespace ranks;
using pith::test::is_due;

namespace {

std::string name_of_rank(int rank) { return "rank " + std::to_string(rank); }

// Processes notice a death within this time.
constexpr double limit_s = 1;

// Reduces until the victim is gone; that is heard of in time.
void reduce_until_error(Rank& self, pithComm_t comm, std::size_t count, int victim) {
  std::vector<std::int64_t> send(count, self.rank);
  std::vector<std::int64_t> recv(count);
  pithResult_t result = pithSuccess;
  for (int turn = 0; result == pithSuccess; ++turn) {
    if (self.rank == victim && turn == 20) self.die();
    result = pithAllReduce(send.data(), recv.data(), count, pithInt64, pithSum, comm, nullptr);
  }
  self.in_time(self.since_death_of(victim), limit_s, "to hear of the death");
  fails(result, pithRemoteError, {name_of_rank(victim)});
}

// After a failure every call is refused at once, and nothing that ends a communicator waits.
void check_revoked(pithComm_t comm, bool abort) {
  const double start = now_s();
  ensure(std::string(pithGetLastError(comm)).find("rank ") != std::string::npos,
         "the communicator's own message names no rank");
  std::int64_t one = 1;
  for (int i = 0; i < 3; ++i) {
    fails(pithAllReduce(&one, &one, 1, pithInt64, pithSum, comm, nullptr), pithRemoteError,
          {"rank "});
    fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank "});
  }
  pithRequest_t request = nullptr;
  ok(pithGroupStart());
  pithBarrier(comm, nullptr);
  pithBarrier(comm, nullptr);
  if (pithGroupEndAsync(&request) == pithSuccess) {
    ensure(pithWait(request) == pithRemoteError, "a background call on a revoked communicator");
  }
  int value = -1;
  ok(pithCommCount(comm, &value));
  ok(pithCommUserRank(comm, &value));
  ok(abort ? pithCommAbort(comm) : pithCommDestroy(comm));
  ensure(now_s() - start < 1.5, "the end of a revoked communicator took long");
}

// The survivors meet again under a new id and are well.
void start_again(Rank& self, int victim) {
  const int survivors = self.size - 1;
  if (survivors < 1) return;
  const int root = victim == 0 ? 1 : 0;
  pithUniqueId id;
  auto* words = reinterpret_cast<std::uint64_t*>(id.internal);
  constexpr int length = PITH_UNIQUE_ID_BYTES / 8;
  // Slots 0 to 3 of four ranks are enough for an id; slot 4 says that it is there.
  const auto slot = [&](int i) -> auto& { return self.slot(40 + i / 4, i % 4); };
  if (self.rank == root) {
    ok(pithGetUniqueId(&id));
    for (int i = 0; i < length; ++i) slot(i) = words[i];
    self.slot(40, 4) = 1;
  }
  wait_until([&] { return self.slot(40, 4) == 1; });
  for (int i = 0; i < length; ++i) words[i] = slot(i);
  pithComm_t comm = nullptr;
  const int rank = self.rank > victim ? self.rank - 1 : self.rank;
  ok(pithCommInitRank(&comm, survivors, id, rank));
  std::int64_t one = 1;
  std::int64_t sum = 0;
  ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, comm, nullptr));
  ensure(sum == survivors, "a wrong sum among the survivors");
  ok(pithCommDestroy(comm));
}

}  // namespace

TEST_CASE("a rank is killed between and in calls", "[failure]") {
  int link = 0;
  for (const Setup& setup : between_processes()) {
    ++link;
    for (int size = 2; size <= 4; ++size) {
      for (const std::size_t count : {1u, 100'000u}) {
        if (!is_due({link, size, count == 1 ? 0 : 1})) continue;
        const int victim = count == 1 ? 0 : size - 1;
        INFO(name_of(setup) << ", " << size << " ranks, count " << count);
        CHECK(run_in_time(size, setup, [&](Rank& self) {
                pithComm_t comm = self.join();
                reduce_until_error(self, comm, count, victim);
                check_revoked(comm, self.rank % 2 == 0);
                start_again(self, victim);
              }) == "");
      }
    }
  }
}

TEST_CASE("a rank is killed with calls in the background", "[failure]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run_in_time(3, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            std::vector<std::vector<float>> data(8, std::vector<float>(100'000, 1.0f));
            std::vector<pithRequest_t> requests(data.size(), nullptr);
            if (self.rank == 1) {
              sleep_s(0.2);
              self.die();
            }
            for (std::size_t i = 0; i < data.size(); ++i) {
              ok(pithGroupStart());
              ok(pithAllReduce(data[i].data(), data[i].data(), data[i].size(), pithFloat32, pithSum,
                               comm, nullptr));
              ok(pithGroupEndAsync(&requests[i]));
            }
            for (const pithRequest_t request : requests) {
              fails(pithWait(request), pithRemoteError, {"rank 1"});
            }
            self.in_time(self.since_death_of(1), limit_s, "to end the calls");
            check_revoked(comm, true);
          }) == "");
  }
}

TEST_CASE("a rank is killed during start-up", "[failure]") {
  Setup setup;
  setup.may_be_killed = true;
  CHECK(run_in_time(3, setup, [](Rank& self) {
          const pithUniqueId id = self.id();
          pithComm_t comm = nullptr;
          std::thread killer;
          if (self.rank == 2) {
            killer = std::thread([&self] {
              sleep_s(0.5);
              self.die();
            });
          }
          // A fourth rank never comes, so that all three wait.
          const pithResult_t result = pithCommInitRank(&comm, 4, id, self.rank);
          fails(result, pithRemoteError, {"rank 2"});
          self.in_time(self.since_death_of(2), limit_s, "to hear of the death");
          ensure(comm == nullptr, "a communicator with a dead rank");
          sleep_s(0.5);  // the root's process stays until all have heard
        }) == "");
}

TEST_CASE("abort from another thread", "[failure][threads]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(2, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            ok(pithBarrier(comm, nullptr));
            self.meet();
            if (self.rank == 1) {
              // Never comes to the call, but is told.
              self.meet();
              // What rank 0 sent before the abort may still complete one call.
              if (pithBarrier(comm, nullptr) == pithSuccess) pithBarrier(comm, nullptr);
              fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 0"});
              ok(pithCommDestroy(comm));
              return;
            }
            std::thread aborter([&] {
              sleep_s(0.1);
              pithCommAbort(comm);
            });
            const double start = now_s();
            const pithResult_t result = pithBarrier(comm, nullptr);
            const double took = now_s() - start;
            aborter.join();
            self.meet();
            fails(result, pithRemoteError, {"rank 0"});
            ensure(took < 1.1, "the call went on after the abort");
          }) == "");
  }
}

TEST_CASE("one rank aborts while others wait", "[failure][threads]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run_in_time(3, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            ok(pithBarrier(comm, nullptr));
            if (self.rank == 1) {
              sleep_s(0.1);
              ok(pithCommAbort(comm));
              return;
            }
            const double start = now_s();
            fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 1"});
            self.in_time(now_s() - start, limit_s, "to hear of the abort");
            check_revoked(comm, false);
          }) == "");
  }
}

TEST_CASE("a rank leaves while others still call", "[failure]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            ok(pithBarrier(comm, nullptr));
            // A rank that is still in the first barrier when it hears of the loss fails there.
            self.meet();
            if (self.rank == 2) {
              ok(pithCommDestroy(comm));
              return;
            }
            fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 2"});
            check_revoked(comm, false);
          }) == "");
  }
}

namespace {

// What this process writes to its error output.
class ErrorOutput {
 public:
  ErrorOutput() : file_(memfd_create("stderr", 0)) { dup2(file_, STDERR_FILENO); }
  ~ErrorOutput() { close(file_); }
  ErrorOutput(const ErrorOutput&) = delete;
  ErrorOutput& operator=(const ErrorOutput&) = delete;

  bool says(const std::string& word) const {
    std::string text(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)), '\0');
    const ssize_t got = pread(file_, text.data(), text.size(), 0);
    return got > 0 && text.find(word) != std::string::npos;
  }

 private:
  int file_;
};

// Computes, outside Pith.
void compute_s(double seconds) {
  const double until = now_s() + seconds;
  while (now_s() < until) {
  }
}

}  // namespace

TEST_CASE("ranks that compute are taken for alive, and hear of deaths meanwhile", "[failure]") {
  for (Setup& setup : between_processes()) {
    INFO(name_of(setup));
    setup.environment = {{"PITH_HEARTBEAT", "1"}, {"PITH_LOG", "info"}};
    CHECK(run_in_time(4, setup, [](Rank& self) {
            const ErrorOutput output;
            const Comm comm(self.join());
            ok(pithBarrier(comm, nullptr));
            // The root of the control tree and another one, longer than any silence is borne.
            if (self.rank < 2) compute_s(1.4);
            ok(pithBarrier(comm, nullptr));
            self.meet();
            if (self.rank == 3) {
              sleep_s(0.1);
              self.die();
            }
            // It is told although nobody calls anything.
            wait_until([&] { return output.says("no call can be made any more: rank 3"); });
            self.in_time(self.since_death_of(3), limit_s, "to hear of the death");
            pithResult_t state = pithSuccess;
            ok(pithCommGetAsyncError(comm, &state));
            ensure(state == pithRemoteError, "no remote error at the first question");
            fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 3"});
          }) == "");
  }
}
