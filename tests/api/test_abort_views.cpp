// An abort in the middle of a call whose ranks work in each other's memory: when a rank's call has
// returned nobody touches its buffer any more, though others may hear of the abort later.
#include <algorithm>
#include <cstring>
#include <span>
#include <string>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr std::size_t bytes = std::size_t{8} << 20;
constexpr char scribble = 0x5A;

// A call that one rank aborts so long after it has begun there.
pithResult_t interrupted(const Rank& self, pithComm_t comm, char* data, double after_s) {
  pithRequest_t request = nullptr;
  ok(pithGroupStart());
  ok(pithAllReduce(data, data, bytes / 4, pithInt32, pithSum, comm, nullptr));
  ok(pithGroupEndAsync(&request));
  if (self.rank == 0) {
    sleep_s(after_s);
    ok(pithCommAbort(comm));
  }
  return pithWait(request);
}

void abort_in_the_middle(Rank& self, bool registered, double after_s) {
  const Buffer data(bytes, registered);
  std::memset(data.data(), 0, bytes);
  pithComm_t comm = self.join();
  ok(pithAllReduce(data.data(), data.data(), bytes / 4, pithInt32, pithSum, comm, nullptr));
  self.meet();
  const pithResult_t result = interrupted(self, comm, data.data(), after_s);
  std::memset(data.data(), scribble, bytes);
  ensure(result == pithSuccess || result == pithRemoteError, "code " + std::to_string(result));
  sleep_s(0.02);
  const auto is_ours = [](char c) { return c == scribble; };
  ensure(std::ranges::all_of(std::span(data.data(), bytes), is_ours),
         "written after the call had returned");
  self.meet();
  if (self.rank != 0) ok(pithCommDestroy(comm));
}

}  // namespace

TEST_CASE("an abort in the middle leaves buffers alone", "[aborts]") {
  Setup shm;
  shm.transport = "shm";
  Setup copies = shm;
  copies.environment = {{"PITH_COPY_BYTES", "1"}};
  Setup local;
  local.way = Way::all;
  local.transport = "local";
  for (const int ranks : {2, 3}) {
    for (const double after_s : {1e-4, 3e-4, 6e-4, 1e-3, 2e-3, 3e-3, 5e-3, 8e-3}) {
      INFO(ranks << " ranks, after " << after_s << " s");
      const auto body = [after_s](bool registered) {
        return [=](Rank& self) { abort_in_the_middle(self, registered, after_s); };
      };
      CHECK(run(ranks, shm, body(true)) == "");
      CHECK(run(ranks, copies, body(false)) == "");
      CHECK(run(ranks, local, body(false)) == "");
    }
  }
}
