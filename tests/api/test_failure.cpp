// Ranks that die or give up: the others hear of it at once, and nothing stays behind.
#include <dirent.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <thread>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

std::string name_of_rank(int rank) { return "rank " + std::to_string(rank); }

std::string files_in_dev_shm() {
  std::string names;
  if (DIR* folder = opendir("/dev/shm")) {
    while (const dirent* entry = readdir(folder)) {
      const std::string name = entry->d_name;
      if (name.find("pith") != std::string::npos) names += name + "\n";
    }
    closedir(folder);
  }
  return names;
}

std::vector<Setup> between_processes() {
  std::vector<Setup> setups = every_link();
  std::erase_if(setups, [](const Setup& setup) { return setup.way == Way::all; });
  for (Setup& setup : setups) {
    setup.may_be_killed = true;
    setup.limit_s = 20;
  }
  return setups;
}

// Reduces until the victim is gone; returns when the error came, in seconds after its death.
double reduce_until_error(Rank& self, pithComm_t comm, std::size_t count, int victim) {
  std::vector<std::int64_t> send(count, self.rank);
  std::vector<std::int64_t> recv(count);
  pithResult_t result = pithSuccess;
  for (int turn = 0; result == pithSuccess; ++turn) {
    if (self.rank == victim && turn == 20) {
      self.slot(victim) = static_cast<std::uint64_t>(now_s() * 1e6);
      raise(SIGKILL);
    }
    result = pithAllReduce(send.data(), recv.data(), count, pithInt64, pithSum, comm, nullptr);
  }
  fails(result, pithRemoteError, {name_of_rank(victim)});
  return now_s() - static_cast<double>(self.slot(victim)) / 1e6;
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
  for (const Setup& setup : between_processes()) {
    for (int size = 2; size <= 4; ++size) {
      for (const std::size_t count : {1u, 100'000u}) {
        const int victim = count == 1 ? 0 : size - 1;
        INFO(name_of(setup) << ", " << size << " ranks, count " << count);
        CHECK(run(size, setup, [&](Rank& self) {
                pithComm_t comm = self.join();
                const double delay = reduce_until_error(self, comm, count, victim);
                ensure(delay < 1.5, "heard of it after " + std::to_string(delay) + " s");
                check_revoked(comm, self.rank % 2 == 0);
                start_again(self, victim);
              }) == "");
        CHECK(files_in_dev_shm() == "");
      }
    }
  }
}

TEST_CASE("a rank is killed while all others wait in a barrier", "[failure]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run(4, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            ok(pithBarrier(comm, nullptr));
            if (self.rank == 2) {
              sleep_s(0.3);
              raise(SIGKILL);
            }
            fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 2"});
            check_revoked(comm, false);
          }) == "");
  }
}

TEST_CASE("a rank is killed with calls in the background", "[failure]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            std::vector<std::vector<float>> data(8, std::vector<float>(100'000, 1.0f));
            std::vector<pithRequest_t> requests(data.size(), nullptr);
            if (self.rank == 1) {
              sleep_s(0.2);
              raise(SIGKILL);
            }
            for (std::size_t i = 0; i < data.size(); ++i) {
              ok(pithGroupStart());
              ok(pithAllReduce(data[i].data(), data[i].data(), data[i].size(), pithFloat32, pithSum,
                               comm, nullptr));
              ok(pithGroupEndAsync(&requests[i]));
            }
            const double start = now_s();
            for (const pithRequest_t request : requests) {
              fails(pithWait(request), pithRemoteError, {"rank 1"});
            }
            ensure(now_s() - start < 2, "background calls ended late");
            check_revoked(comm, true);
          }) == "");
  }
}

TEST_CASE("a rank is killed during start-up", "[failure]") {
  Setup setup;
  setup.may_be_killed = true;
  CHECK(run(3, setup, [](Rank& self) {
          const pithUniqueId id = self.id();
          pithComm_t comm = nullptr;
          std::thread killer;
          if (self.rank == 2) {
            killer = std::thread([] {
              sleep_s(0.5);
              raise(SIGKILL);
            });
          }
          // A fourth rank never comes, so that all three wait.
          const pithResult_t result = pithCommInitRank(&comm, 4, id, self.rank);
          fails(result, pithRemoteError, {"rank 2"});
          ensure(comm == nullptr, "a communicator with a dead rank");
          sleep_s(0.5);  // the root's process stays until all have heard
        }) == "");
}

TEST_CASE("abort from another thread", "[failure][threads]") {
  for (Setup setup : every_link()) {
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
    CHECK(run(3, setup, [](Rank& self) {
            pithComm_t comm = self.join();
            ok(pithBarrier(comm, nullptr));
            if (self.rank == 1) {
              sleep_s(0.1);
              ok(pithCommAbort(comm));
              return;
            }
            const double start = now_s();
            fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 1"});
            ensure(now_s() - start < 2, "heard of the abort late");
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
