// Ranks that do not mean the same when one of them shrinks: who is told, and who goes on.
#include <array>
#include <cstdlib>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

pithResult_t sum_bytes(pithComm_t comm) {
  const std::array<char, 8> send{};
  std::array<char, 8> recv{};
  return pithAllReduce(send.data(), recv.data(), send.size(), pithInt8, pithSum, comm, nullptr);
}

pithResult_t reduce_until_error(pithComm_t comm) {
  pithResult_t result = pithSuccess;
  while (result == pithSuccess) result = sum_bytes(comm);
  return result;
}

// excluded -1: nobody is named.
pithResult_t shrink(pithComm_t comm, int excluded, pithComm_t& next) {
  const bool any = excluded >= 0;
  return pithCommShrink(comm, any ? &excluded : nullptr, any ? 1 : 0, &next, nullptr,
                        PITH_SHRINK_DEFAULT);
}

// Three of four go on.
void go_on(Rank& self, pithComm_t comm, int excluded) {
  pithComm_t next = nullptr;
  ok(shrink(comm, excluded, next));
  std::int64_t one = 1;
  std::int64_t sum = 0;
  ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, next, nullptr));
  ensure(sum == 3, "rank " + std::to_string(self.rank) + " has a wrong sum");
  ok(pithCommDestroy(next));
}

// Rank 1 shrinks the communicator without rank 2, which is in whatever it likes.
void shrink_beside_a_call(Rank& self) {
  const Comm comm(self.join());
  ok(pithBarrier(comm, nullptr));
  self.meet();
  const double start = now_s();
  pithComm_t next = nullptr;
  const pithResult_t result = self.rank == 1 ? shrink(comm, 2, next) : sum_bytes(comm);
  const std::string text = pithGetLastError(nullptr);
  ensure(result == pithInvalidUsage, "code " + std::to_string(result) + ": " + text);
  ensure(text.find("rank 0 called allreduce of 8 int8, sum, rank 1 called shrink without rank 2") !=
             std::string::npos,
         text);
  self.in_time(now_s() - start, 1, "to hear of it");
  // It is over, and those who shrink it now find each other.
  if (self.rank != 2) {
    ok(shrink(comm, 2, next));
    std::int64_t one = 1;
    std::int64_t sum = 0;
    ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, next, nullptr));
    ensure(sum == 2, "a wrong sum");
    ok(pithCommDestroy(next));
  }
  self.meet();
}

// Rank 2 is left out, and in a call that the others come to when they have shrunk.
void shrink_without_one(Rank& self) {
  const Comm comm(self.join());
  ok(pithBarrier(comm, nullptr));
  self.meet();
  if (self.rank != 2) {
    if (self.rank == 0) sleep_s(1.5);  // the other one has said long before that it shrinks
    pithComm_t next = nullptr;
    ok(shrink(comm, 2, next));
    ok(pithBarrier(next, nullptr));
    ok(pithCommDestroy(next));
    if (self.rank == 0) sleep_s(1);
  }
  std::int64_t one = 1;
  std::int64_t sum = 0;
  ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, comm, nullptr));
  ensure(sum == 3, "a wrong sum of the old one");
  self.meet();
}

// Rank 1 gives up what the others are still in.
void shrink_that_aborts(Rank& self) {
  const Comm comm(self.join());
  ok(pithBarrier(comm, nullptr));
  self.meet();
  if (self.rank != 1) {
    fails(sum_bytes(comm), pithRemoteError, {"rank 1 aborted"});
  } else {
    sleep_s(0.5);
  }
  pithComm_t next = nullptr;
  ok(pithCommShrink(comm, nullptr, 0, &next, nullptr,
                    self.rank == 1 ? PITH_SHRINK_ABORT : PITH_SHRINK_DEFAULT));
  ok(pithBarrier(next, nullptr));
  ok(pithCommDestroy(next));
}

// Rank 3 dies. Rank 0 leaves rank 2 out, which lives; the others do not.
void shrink_to_different_ones(Rank& self) {
  const Comm comm(self.join());
  self.meet();
  if (self.rank == 3) self.die();
  fails(reduce_until_error(comm), pithRemoteError, {"rank 3"});
  pithComm_t next = nullptr;
  const double start = now_s();
  const pithResult_t result = shrink(comm, self.rank == 0 ? 2 : -1, next);
  if (self.rank == 0) fails(result, pithInvalidUsage, {"leaves out other ranks than rank 0"});
  if (self.rank == 1) fails(result, pithInvalidUsage, {"rank 0 leaves out other ranks"});
  if (self.rank == 2) fails(result, pithRemoteError, {"rank 0 shrinks this communicator without"});
  self.in_time(now_s() - start, 1, "to hear of it");
  // It is over: what they agree on now is made.
  go_on(self, comm, -1);
}

// The first link alone, but all with PITH_TEST_FULL.
void check_over(std::vector<Setup> setups, int ranks, void (*body)(Rank&),
                std::string (*run_them)(int, const Setup&, const Body&) = run) {
  if (!std::getenv("PITH_TEST_FULL")) setups.resize(1);
  for (const Setup& setup : setups) {
    INFO(name_of(setup));
    CHECK(run_them(ranks, setup, body) == "");
  }
}

}  // namespace

TEST_CASE("a rank shrinks while another is in a call", "[shrink]") {
  check_over(every_link(), 3, shrink_beside_a_call, run_in_time);
}

TEST_CASE("who is left out of a shrink may be in anything", "[shrink]") {
  check_over(every_link(), 3, shrink_without_one);
}

TEST_CASE("a shrink that aborts ends what the others are in", "[shrink]") {
  check_over(every_link(), 3, shrink_that_aborts);
}

TEST_CASE("ranks that leave out different ones hear of it", "[shrink]") {
  check_over(between_processes(), 4, shrink_to_different_ones, run_in_time);
}
