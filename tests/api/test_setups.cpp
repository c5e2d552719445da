// Communicators that are made in groups: several of one parent, and where threads are short.
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

int size_of(pithComm_t comm) {
  int size = 0;
  ok(pithCommCount(comm, &size));
  return size;
}

std::int64_t sum_of_ones(pithComm_t comm) {
  std::int64_t one = 1;
  ok(pithAllReduce(&one, &one, 1, pithInt64, pithSum, comm, nullptr));
  return one;
}

// Split i puts the ranks up to i together, and the others.
void several_splits_of_one(Rank& self) {
  const Comm comm(self.join());
  for (int turn = 0; turn < 8; ++turn) {
    std::vector<pithComm_t> made(static_cast<std::size_t>(self.size), nullptr);
    ok(pithGroupStart());
    for (int i = 0; i < self.size; ++i) {
      ok(pithCommSplit(comm, self.rank <= i ? 0 : 1, 0, &made[static_cast<std::size_t>(i)],
                       nullptr));
    }
    ok(pithGroupEnd());
    for (int i = 0; i < self.size; ++i) {
      const Comm child(made[static_cast<std::size_t>(i)]);
      const int expected = self.rank <= i ? i + 1 : self.size - i - 1;
      ensure(size_of(child) == expected,
             "split " + std::to_string(i) + " has the ranks of another");
      ensure(sum_of_ones(child) == expected, "a wrong sum");
    }
  }
  ensure(sum_of_ones(comm) == self.size, "the parent is not well");
}

// One thread is all ranks: those of one split wait for each other, the splits of a rank do not.
void several_splits_by_one_thread(Rank&) {
  constexpr int size = 3;
  std::vector<pithComm_t> comms(size, nullptr);
  ok(pithCommInitAll(comms.data(), size, nullptr));
  pithComm_t made[2][size] = {};
  ok(pithGroupStart());
  for (int split = 0; split < 2; ++split) {
    for (int r = 0; r < size; ++r) {
      ok(pithCommSplit(comms[static_cast<std::size_t>(r)], split == 0 ? 0 : r, 0, &made[split][r],
                       nullptr));
    }
  }
  ok(pithGroupEnd());
  for (int r = 0; r < size; ++r) {
    ensure(size_of(made[0][r]) == size, "the first split");
    ensure(size_of(made[1][r]) == 1, "the second split");
    ok(pithCommDestroy(made[0][r]));
    ok(pithCommDestroy(made[1][r]));
    ok(pithCommDestroy(comms[static_cast<std::size_t>(r)]));
  }
}

std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Once no thread begins or ends any more, as far as can be seen: one that did under a limit that
// knows nothing of its stack would be without memory at all.
std::size_t settled_address_space() {
  constexpr int looks = 10;
  std::size_t bytes = address_space();
  for (int alike = 0; alike < looks;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const std::size_t now = address_space();
    alike = std::exchange(bytes, now) == now ? alike + 1 : 0;
  }
  return bytes;
}

// While it lives this process can start so many threads more.
class FewThreads {
 public:
  explicit FewThreads(std::size_t threads) {
    const std::size_t used = settled_address_space();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    ensure(pthread_setattr_default_np(&attributes) == 0, "no larger stacks");
    pthread_attr_destroy(&attributes);
    getrlimit(RLIMIT_AS, &before_);
    rlimit less = before_;
    less.rlim_cur = used + threads * stack + stack / 2;
    ensure(setrlimit(RLIMIT_AS, &less) == 0, "no limit");
  }
  ~FewThreads() {
    setrlimit(RLIMIT_AS, &before_);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, std::size_t{8} << 20);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  FewThreads(const FewThreads&) = delete;
  FewThreads& operator=(const FewThreads&) = delete;

 private:
  static constexpr std::size_t stack = std::size_t{1} << 30;
  rlimit before_{};
};

void too_few_threads(Rank& self) {
  constexpr int size = 3;
  std::vector<pithComm_t> comms(size, nullptr);
  ok(pithCommInitAll(comms.data(), size, nullptr));
  std::vector<pithComm_t> made(size, nullptr);
  const auto split = [&] {
    ok(pithGroupStart());
    for (std::size_t r = 0; r < size; ++r) ok(pithCommSplit(comms[r], 0, 0, &made[r], nullptr));
    return pithGroupEnd();
  };
  pithConfig_t config = PITH_CONFIG_INITIALIZER;
  config.blocking = 0;
  const pithUniqueId id = self.id();
  pithComm_t other = nullptr;
  for (const std::size_t threads : {0u, 1u, 2u}) {
    const FewThreads few(threads);
    fails(split(), pithSystemError, {"a thread cannot be started"});
    ensure(!made[0] && !made[1] && !made[2], "a communicator came of a group that failed");
    if (threads > 0) continue;
    fails(pithCommInitRankConfig(&other, 1, id, 0, &config), pithSystemError,
          {"a thread cannot be started"});
    ensure(other == nullptr, "a handle without a communicator");
  }
  ok(split());
  for (const pithComm_t comm : made) ok(pithCommDestroy(comm));
  for (const pithComm_t comm : comms) ok(pithCommDestroy(comm));
}

// Calls in the background need the progress thread: without it none begins, and nothing is left of
// them that would run, or be waited for, later.
void no_progress_thread(Rank& self) {
  const Comm comm(self.join());
  int one = 1;
  const auto sum_in_background = [&](pithRequest_t* request) {
    ok(pithGroupStart());
    ok(pithAllReduce(&one, &one, 1, pithInt32, pithSum, comm, nullptr));
    return pithGroupEndAsync(request);
  };
  pithRequest_t request = nullptr;
  {
    const FewThreads few(0);
    for (int i = 0; i < 2; ++i) {
      fails(sum_in_background(&request), pithSystemError, {"the progress thread"});
    }
  }
  ok(pithGroupStart());
  ok(pithGroupEnd());
  ok(sum_in_background(&request));
  ok(pithWait(request));
  ensure(one == self.size, "a call that was refused ran all the same");
}

// The ranks of one process, each of which is started by a thread.
void too_few_threads_to_begin(Rank&) {
  std::vector<pithComm_t> comms(3, nullptr);
  ok(pithCommInitAll(comms.data(), 3, nullptr));  // the library's own threads are there
  std::vector<pithComm_t> more(3, nullptr);
  {
    const FewThreads few(2);  // the root of the bootstrap, and one rank
    fails(pithCommInitAll(more.data(), 3, nullptr), pithSystemError,
          {"a thread cannot be started"});
  }
  ok(pithCommInitAll(more.data(), 3, nullptr));
  for (const pithComm_t comm : more) ok(pithCommDestroy(comm));
  for (const pithComm_t comm : comms) ok(pithCommDestroy(comm));
}

// The root of an id has a thread, whose stack must not stay.
void many_ids(Rank&) {
  const auto make_one = [] {
    pithUniqueId id;
    pithComm_t comm = nullptr;
    ok(pithGetUniqueId(&id));
    ok(pithCommInitRank(&comm, 1, id, 0));
    ok(pithCommDestroy(comm));
  };
  for (int i = 0; i < 5; ++i) make_one();
  const std::size_t before = address_space();
  constexpr std::size_t more = 40;
  for (std::size_t i = 0; i < more; ++i) make_one();
  const std::size_t grown = address_space() - std::min(before, address_space());
  ensure(grown < more * (std::size_t{4} << 20), "grew by " + std::to_string(grown >> 20) + " MiB");
}

// All ranks, and each pair of them; ranks count from 0 in all of these.
void communicators_of_ids(Rank& self) {
  const Comm world(self.join());
  const int pair = self.rank / 2;
  const pithUniqueId first = self.id(1);
  const pithUniqueId second = self.id(2);
  pithComm_t made = nullptr;
  ok(pithCommInitRank(&made, 2, pair == 0 ? first : second, self.rank % 2));
  const Comm mine(made);
  ensure(sum_of_ones(world) == 4 && sum_of_ones(mine) == 2, "a wrong sum");
}

Setup alone(const char* transport) {
  Setup setup;
  setup.way = Way::alone;
  setup.transport = transport;
  return setup;
}

}  // namespace

TEST_CASE("several splits of one communicator in a group", "[groups][threads]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(4, setup, several_splits_of_one) == "");
  }
}

TEST_CASE("every communicator has files of its own", "[groups]") {
  char folder[] = "/tmp/pith_trace_XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  Setup setup;
  setup.environment = {{"PITH_TRACE", std::string(folder) + "/t"},
                       {"PITH_EXPLAIN_LOG", std::string(folder) + "/choices"}};
  CHECK(run(4, setup, communicators_of_ids) == "");
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    INFO(file.path());
    CHECK(file.file_size() > 0);
    ++files;
  }
  CHECK(files == 8 + 3);  // traces of every rank, choices of rank 0
  std::filesystem::remove_all(folder);
}

TEST_CASE("several splits of all ranks of a thread in a group", "[groups][threads]") {
  CHECK(run(1, alone("local"), several_splits_by_one_thread) == "");
}

TEST_CASE("no threads are left for the communicators of a group", "[groups]") {
  CHECK(run(1, alone("local"), too_few_threads) == "");
}

TEST_CASE("no thread is left for calls in the background", "[groups]") {
  CHECK(run(2, Setup(), no_progress_thread) == "");
}

TEST_CASE("no threads are left for the ranks of InitAll", "[groups]") {
  CHECK(run(1, alone("shm"), too_few_threads_to_begin) == "");
}

TEST_CASE("ids whose communicators are gone leave nothing", "[groups]") {
  CHECK(run(1, alone("shm"), many_ids) == "");
}

namespace {

// What ranks that do not block wait for.
pithResult_t settle(pithResult_t result, pithComm_t comm) {
  wait_until([&] {
    if (result != pithInProgress) return true;
    ok(pithCommGetAsyncError(comm, &result));
    return result != pithInProgress;
  });
  return result;
}

pithResult_t reduce_one(pithComm_t comm, std::int64_t value, std::int64_t& sum) {
  return pithAllReduce(&value, &sum, 1, pithInt64, pithSum, comm, nullptr);
}

}  // namespace

TEST_CASE("splits of splits, by color and key", "[setups]") {
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

namespace {

// A reduction that is begun here before any other rank begins it, where rank 0 does not wait.
pithResult_t begin_before_others(Rank& self, pithComm_t comm, std::int64_t& sum) {
  const std::int64_t one = 1;
  if (self.rank != 0) self.meet();
  const pithResult_t begun = pithAllReduce(&one, &sum, 1, pithInt64, pithSum, comm, nullptr);
  if (self.rank == 0) self.meet();
  const pithResult_t result = settle(begun, comm);
  ensure(begun == pithInProgress, "the call blocked");
  return result;
}

}  // namespace

TEST_CASE("a child that does not block, of a parent that does", "[setups]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            const Comm parent(self.join());
            pithConfig_t config = PITH_CONFIG_INITIALIZER;
            config.blocking = 0;
            pithComm_t made = nullptr;
            ok(pithCommSplit(parent, 0, 0, &made, &config));
            const Comm child(made);
            std::int64_t sum = 0;
            ok(begin_before_others(self, child, sum));
            ensure(sum == 3, "a wrong sum of the child");
            ok(reduce_one(parent, 1, sum));
            ensure(sum == 3, "a wrong sum of the parent");

            // As its parent, or as it is told.
            pithComm_t same = nullptr;
            ok(settle(pithCommSplit(child, 0, 0, &same, nullptr), child));
            const Comm grandchild(same);
            ok(begin_before_others(self, grandchild, sum));
            config.blocking = 1;
            pithComm_t other = nullptr;
            const pithResult_t begun = pithCommSplit(child, 0, 0, &other, &config);
            ensure(begun == pithInProgress, "the child waited for a split");
            ok(settle(begun, child));
            const Comm blocking(other);
            ok(reduce_one(blocking, 2, sum));
            ensure(sum == 6, "a wrong sum of the child that blocks");
          }) == "");
  }
}

TEST_CASE("ranks that do not block", "[setups]") {
  CHECK(run(3, between_processes().front(), [](Rank& self) {
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
