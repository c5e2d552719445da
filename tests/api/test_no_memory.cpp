// Ranks that run out of memory inside a call: no crash, no hang, and an error on all ranks.
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "catch.hpp"
#include "ranks.hpp"
#include "refusing_memory.hpp"

using namespace ranks;

namespace {

constexpr std::size_t message_bytes = std::size_t{48} << 10;

// Rank 0 waits for rank 2 while a message of rank 1 comes that it has to keep.
void keep_without_memory(Rank& self, bool must_fail) {
  const Comm comm(self.join());
  std::vector<char> data(message_bytes, char{1});
  ok(pithBarrier(comm, nullptr));
  self.meet();
  if (self.rank == 0) refused_from = 8 << 10;
  self.meet();
  pithResult_t result = pithSuccess;
  if (self.rank == 1) {
    result = pithSend(data.data(), data.size(), pithInt8, 0, comm, nullptr);
    if (result == pithSuccess) result = pithBarrier(comm, nullptr);
  } else if (self.rank == 0) {
    result = pithBarrier(comm, nullptr);
    if (result == pithSuccess) {
      result = pithRecv(data.data(), data.size(), pithInt8, 1, comm, nullptr);
    }
  } else {
    sleep_s(0.2);
    result = pithBarrier(comm, nullptr);
  }
  const std::string message = pithGetLastError(comm);
  refused_from = refuse_nothing;
  self.agree(result == pithSuccess);
  if (result == pithSuccess) return ensure(!must_fail, "there was memory");
  ensure(result == (self.rank == 0 ? pithSystemError : pithRemoteError), message);
  ensure(message.find("rank 0: out of memory") != std::string::npos, message);
}

pithResult_t exchange(Rank& self, pithComm_t comm, std::vector<float>& in,
                      std::vector<float>& out) {
  const int next = (self.rank + 1) % self.size;
  const int before = (self.rank + self.size - 1) % self.size;
  pithResult_t result =
      pithAllReduce(in.data(), out.data(), in.size(), pithFloat32, pithSum, comm, nullptr);
  if (result == pithSuccess) result = pithGroupStart();
  if (result != pithSuccess) return result;
  pithResult_t in_group = pithSend(in.data(), in.size(), pithFloat32, next, comm, nullptr);
  if (in_group == pithSuccess) {
    in_group = pithRecv(out.data(), out.size(), pithFloat32, before, comm, nullptr);
  }
  if (in_group == pithSuccess) {
    in_group = pithAllReduce(in.data(), in.data(), 1000, pithFloat32, pithSum, comm, nullptr);
  }
  result = pithGroupEnd();
  return in_group == pithSuccess ? result : in_group;
}

// Every allocation of rank 0's own thread is refused once, each in a communicator of its own.
void refuse_each(Rank& self) {
  std::vector<float> in(100'000, 1.0F);
  std::vector<float> out(in.size());
  const Comm all(self.join());
  for (long n = 0;; ++n) {
    pithComm_t comm = nullptr;
    ok(pithCommSplit(all, 0, self.rank, &comm, nullptr));
    self.meet();
    if (self.rank == 0) granted_before = n;
    const pithResult_t result = exchange(self, comm, in, out);
    const bool refused = self.rank == 0 && granted_before < 0;
    granted_before = -1;
    self.slot(self.rank, 1) = refused;
    // Others wait for a rank that was refused before its call had begun: users abort then.
    ok(result == pithSuccess ? pithCommDestroy(comm) : pithCommAbort(comm));
    self.meet();
    if (self.slot(0, 1) == 0) {
      std::printf("%d allocations\n", static_cast<int>(n));
      return ok(result);
    }
    if (self.rank != 0 && result != pithSuccess) {
      ensure(result == pithRemoteError, pithGetLastError(nullptr));
    }
  }
}

}  // namespace

TEST_CASE("without memory for a message the call fails on all ranks", "[no-memory]") {
  for (const Setup& link : between_processes()) {
    INFO(name_of(link));
    const bool keeps_in_its_heap = link.transport == "tcp";
    CHECK(run(3, link, [&](Rank& self) { keep_without_memory(self, keeps_in_its_heap); }) == "");
  }
}

TEST_CASE("each allocation of a call may be the one for which there is no memory", "[no-memory]") {
  for (const Setup& link : every_link()) {
    if (link.way == Way::all) continue;
    Setup setup = link;
    setup.limit_s = 120;
    DYNAMIC_SECTION(name_of(setup)) { CHECK(run(2, setup, refuse_each) == ""); }
  }
}
