// Handles with blocking = 0 and handles that another thread ends: nobody waits for ever, and
// nothing is used after its end.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "catch.hpp"
#include "compressed.hpp"
#include "everywhere.hpp"

using namespace ranks;

namespace {

pithConfig_t not_blocking() {
  pithConfig_t config = PITH_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

pithResult_t await(pithComm_t comm) {
  pithResult_t result = pithInProgress;
  wait_until([&] {
    ok(pithCommGetAsyncError(comm, &result));
    return result != pithInProgress;
  });
  return result;
}

pithComm_t join_in_background(Rank& self, int which) {
  pithConfig_t config = not_blocking();
  pithComm_t comm = nullptr;
  const pithResult_t begun =
      pithCommInitRankConfig(&comm, self.size, self.id(which), self.rank, &config);
  ensure(begun == pithInProgress, "not in progress");
  ensure(await(comm) == pithSuccess, "not made");
  return comm;
}

// The aborter frees the handle while the call still waits for its peers to let go of its memory.
void abort_in_a_call_on_shared_memory(Rank& self) {
  pithComm_t comm = self.join();
  const Buffer data(std::size_t{1} << 20, true);
  std::memset(data.data(), 0, data.size());
  const auto sum = [&] {
    return pithAllReduce(data.data(), data.data(), data.size() / 4, pithInt32, pithSum, comm,
                         nullptr);
  };
  ok(sum());
  self.meet();
  if (self.rank == 1) {
    self.meet();
    fails(sum(), pithRemoteError, {"rank 0"});
    ok(pithCommDestroy(comm));
    return;
  }
  std::thread aborter([&] {
    sleep_s(0.1);
    pithCommAbort(comm);
  });
  const pithResult_t result = sum();
  aborter.join();
  self.meet();
  fails(result, pithRemoteError, {"rank 0"});
}

// A communicator that is made in the background does not keep the group's calls from running.
void group_with_a_new_communicator(Rank& self) {
  const Comm comm(self.join());
  pithConfig_t config = not_blocking();
  pithComm_t other = nullptr;
  std::int64_t one = 1;
  const pithUniqueId id = self.id(1);
  ok(pithGroupStart());
  ok(pithCommInitRankConfig(&other, self.size, id, self.rank, &config));
  ok(pithAllReduce(&one, &one, 1, pithInt64, pithSum, comm, nullptr));
  ensure(pithGroupEnd() == pithInProgress, "not in progress");
  ensure(one == self.size, "the group's call did not run");
  ensure(await(other) == pithSuccess, "not made");
  ok(pithCommDestroy(other));
}

void abort_of_a_lonely_split(Rank& self) {
  pithComm_t comm = join_in_background(self, 0);
  if (self.rank == 0) {
    pithComm_t child = nullptr;
    ensure(pithCommSplit(comm, 0, 0, &child, nullptr) == pithInProgress, "not in progress");
    sleep_s(0.1);
  }
  self.meet();
  const double begin = now_s();
  ok(pithCommAbort(comm));
  ensure(now_s() - begin < 3, "the abort waited for the split");
}

void call_in_the_background(Rank& self) {
  pithComm_t comm = join_in_background(self, 0);
  std::int64_t one = 1;
  const auto sum = [&] { return pithAllReduce(&one, &one, 1, pithInt64, pithSum, comm, nullptr); };
  ensure(sum() == pithInProgress, "not in progress");
  ensure(await(comm) == pithSuccess && one == self.size, "a wrong sum");
  self.meet();
  if (self.rank == 0) ensure(sum() == pithInProgress, "not in progress");
  const double begin = now_s();
  ok(pithCommAbort(comm));
  ensure(now_s() - begin < 3, "the abort waited for the call");
}

// The last rank never makes the call that the others wait in: they leave it and the rank behind.
void shrink_ends_what_runs(Rank& self) {
  const pithComm_t comm = join_in_background(self, 0);
  int last = self.size - 1;
  self.meet();
  if (self.rank == last) {
    self.meet();
    self.meet();
    ok(pithCommAbort(comm));
    return;
  }
  std::int64_t one = 1;
  ensure(pithAllReduce(&one, &one, 1, pithInt64, pithSum, comm, nullptr) == pithInProgress,
         "not in progress");
  pithComm_t survivors = nullptr;
  fails(pithCommShrink(comm, &last, 1, &survivors, nullptr, PITH_SHRINK_DEFAULT),
        pithInvalidArgument, {"busy"});
  fails(pithCommShrink(comm, &last, 0, &survivors, nullptr, PITH_SHRINK_ABORT), pithInvalidArgument,
        {"n is 0"});
  pithResult_t state = pithSuccess;
  ok(pithCommGetAsyncError(comm, &state));
  ensure(state == pithInProgress, "a shrink that was refused has ended the call");
  self.meet();
  const double begin = now_s();
  ensure(pithCommShrink(comm, &last, 1, &survivors, nullptr, PITH_SHRINK_ABORT) == pithInProgress,
         "the shrink was refused");
  ensure(await(comm) != pithInProgress && survivors, "no communicator of the survivors");
  ensure(now_s() - begin < 3, "the shrink waited for the call");
  one = 1;
  ensure(pithAllReduce(&one, &one, 1, pithInt64, pithSum, survivors, nullptr) == pithInProgress,
         "not in progress");
  ensure(await(survivors) == pithSuccess && one == last, "a wrong sum of the survivors");
  ok(pithCommDestroy(survivors));
  ok(pithCommAbort(comm));
  self.meet();
}

// Others may ask and abort while a thread of the library still makes the communicator.
void end_before_it_is_made(Rank& self) {
  pithConfig_t config = not_blocking();
  pithComm_t comm = nullptr;
  const pithUniqueId id = self.id();
  ensure(pithCommInitRankConfig(&comm, self.size, id, self.rank, &config) == pithInProgress,
         "not in progress");
  pithResult_t result = pithSuccess;
  for (int i = 0; i < 1000 && result != pithRemoteError; ++i) {
    ensure(std::string(pithGetLastError(comm)).empty(), "an error too early");
    ok(pithCommGetAsyncError(comm, &result));
    // The other rank may have aborted it already.
    ensure(result == pithInProgress || result == pithSuccess || result == pithRemoteError,
           "not in progress");
  }
  ok(pithCommAbort(comm));
}

pithResult_t sum_in_background(pithComm_t comm) {
  std::int64_t one = 1;
  const pithResult_t begun = pithAllReduce(&one, &one, 1, pithInt64, pithSum, comm, nullptr);
  ensure(begun == pithInProgress, "not in progress");
  return await(comm);
}

// An output without room: the call's error, while the communicator is well.
pithResult_t fail_in_background(pithComm_t comm, pithCompressor_t compressor) {
  const float send[4] = {1, 2, 3, 4};
  std::uint64_t index = 0;
  float value = 0;
  std::size_t n = 0;
  const pithResult_t begun = pithAllReduceCompressedSparse(
      send, &index, &value, 1, &n, 4, pithFloat32, pithSum, compressor, comm, nullptr);
  ensure(begun == pithInProgress, "not in progress");
  return await(comm);
}

// An error of a call that leaves the communicator well is over with the next call.
void harmless_errors(Rank& self) {
  const Comm comm(join_in_background(self, 0));
  const Compressor compressor("topk:density=0.9,bypass=never");
  ensure(fail_in_background(comm, compressor) == pithInvalidArgument, "it had room");
  const std::string text = pithGetLastError(comm);
  ensure(text.find("capacity is 1") != std::string::npos, text);
  ensure(await(comm) == pithInvalidArgument, "the error is forgotten too early");
  ensure(sum_in_background(comm) == pithSuccess, "the error stays");
  ensure(std::string(pithGetLastError(comm)).empty(), "the message stays");

  setenv("PITH_CHUNK", "nonsense", 1);
  pithComm_t child = nullptr;
  ensure(pithCommSplit(comm, 0, 0, &child, nullptr) == pithInProgress, "not in progress");
  ensure(await(comm) == pithInvalidArgument && !child, "a split with a nonsensical setting");
  unsetenv("PITH_CHUNK");
  ensure(pithCommSplit(comm, 0, 0, &child, nullptr) == pithInProgress, "not in progress");
  ensure(await(comm) == pithSuccess && child, "no child after a split that failed");
  ok(pithCommDestroy(child));

  ensure(fail_in_background(comm, compressor) == pithInvalidArgument, "it had room");
  ok(pithGroupStart());
  ok(pithBarrier(comm, nullptr));
  ok(pithGroupEnd());
  ensure(await(comm) == pithSuccess, "the error stays after a group");
}

// What a thread has been told stays, whatever becomes of the error meanwhile.
void last_error_from_another_thread(Rank& self) {
  const Comm comm(join_in_background(self, 0));
  const Compressor compressor("topk:density=0.9,bypass=never");
  std::atomic<bool> stop{false};
  std::atomic<int> seen{0};
  std::thread asker([&] {
    while (!stop) {
      const char* text = pithGetLastError(comm);
      if (*text == '\0') continue;
      seen += std::string(text).find("capacity is 1") != std::string::npos ? 1 : 1'000'000;
    }
  });
  for (int i = 0; i < 200 || seen == 0; ++i) {
    ensure(fail_in_background(comm, compressor) == pithInvalidArgument, "it had room");
    ensure(sum_in_background(comm) == pithSuccess, "the error stays");
    if (i > 2'000) break;  // the other thread gets no core
  }
  stop = true;
  asker.join();
  ensure(seen < 1'000'000, "a broken message");
}

}  // namespace

TEST_CASE("abort while a call waits for its memory", "[failure][threads]") {
  on_every_link(2, abort_in_a_call_on_shared_memory);
}

TEST_CASE("a group makes a communicator in the background and calls another", "[groups]") {
  for (const Setup& setup : every_link()) {
    if (setup.way == Way::all) continue;
    INFO(name_of(setup));
    CHECK(run(2, setup, group_with_a_new_communicator) == "");
  }
}

TEST_CASE("a shrink that aborts ends what runs with blocking = 0", "[failure]") {
  for (const Setup& setup : every_link()) {
    if (setup.way == Way::all) continue;
    INFO(name_of(setup));
    CHECK(run(3, setup, shrink_ends_what_runs) == "");
  }
}

TEST_CASE("a handle with blocking = 0 is aborted before it is ready", "[failure][threads]") {
  for (const Setup& setup : every_link()) {
    if (setup.way == Way::all) continue;
    INFO(name_of(setup));
    CHECK(run(2, setup, end_before_it_is_made) == "");
  }
}

TEST_CASE("an error that is over with blocking = 0", "[failure]") {
  for (const Setup& setup : every_link()) {
    if (setup.way == Way::all) continue;
    INFO(name_of(setup));
    CHECK(run(2, setup, harmless_errors) == "");
  }
}

TEST_CASE("the last error is asked for by another thread", "[failure][threads]") {
  Setup setup;
  setup.way = Way::threads;
  setup.transport = "shm";
  CHECK(run(1, setup, last_error_from_another_thread) == "");
}

TEST_CASE("a handle with blocking = 0 is aborted", "[failure]") {
  for (const Setup& setup : every_link()) {
    if (setup.way == Way::all) continue;
    INFO(name_of(setup));
    CHECK(run(2, setup, call_in_the_background) == "");
    CHECK(run(2, setup, abort_of_a_lonely_split) == "");
  }
}

TEST_CASE("a communicator names the algorithm of a collective", "[handles]") {
  CHECK(run(2, every_link()[0], [](Rank& self) {
          const Comm comm(self.join());
          const char* name = nullptr;
          ok(pithCommGetAlgorithm(comm, "allreduce", 1 << 20, pithFloat32, &name));
          ensure(name && *name, "no name");
          setenv("PITH_ALGO", "allreduce:ring", 1);
          pithComm_t child = nullptr;
          ok(pithCommSplit(comm, 0, self.rank, &child, nullptr));
          ok(pithCommGetAlgorithm(child, "allreduce", 2, pithFloat16, &name));
          ensure(name == std::string("ring"), "another than the one that is forced");
          ok(pithCommDestroy(child));
          fails(pithCommGetAlgorithm(comm, "allreduced", 1, pithInt8, &name), pithInvalidArgument,
                {"pithCommGetAlgorithm: collective is \"allreduced\""});
          fails(pithCommGetAlgorithm(comm, "allreduce", std::size_t{1} << 62, pithFloat32, &name),
                pithInvalidArgument, {"pithCommGetAlgorithm: count is"});
          fails(pithCommGetAlgorithm(comm, nullptr, 1, pithInt8, &name), pithInvalidArgument,
                {"collective is NULL"});
          fails(pithCommGetAlgorithm(nullptr, "allreduce", 1, pithInt8, &name), pithInvalidArgument,
                {"comm is NULL"});
        }) == "");
}
