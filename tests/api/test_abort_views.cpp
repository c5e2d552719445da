// An abort in the middle of a call whose ranks work in each other's memory: when a rank's call has
// returned nobody touches its buffer any more, though others may hear of the abort later.
#include <cstring>
#include <string>
#include <thread>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr std::size_t bytes = std::size_t{8} << 20;
constexpr std::size_t apart = 1024;
constexpr char scribble = 0x5A;

pithResult_t sum(pithComm_t comm, char* data) {
  return pithAllReduce(data, data, bytes / 4, pithInt32, pithSum, comm, nullptr);
}

// A call that rank 0 aborts so long after it has begun there.
pithResult_t interrupt_request(const Rank& self, pithComm_t comm, char* data, double after_s) {
  pithRequest_t request = nullptr;
  ok(pithGroupStart());
  ok(sum(comm, data));
  ok(pithGroupEndAsync(&request));
  if (self.rank == 0) {
    sleep_s(after_s);
    ok(pithCommAbort(comm));
  }
  return pithWait(request);
}

// The same of a call that blocks: by another thread, which may return later than the call.
pithResult_t interrupt_blocking(const Rank& self, pithComm_t comm, char* data, double after_s,
                                std::jthread& aborter) {
  if (self.rank == 0) {
    aborter = std::jthread([=] {
      sleep_s(after_s);
      pithCommAbort(comm);
    });
  }
  return sum(comm, data);
}

void abort_in_the_middle(Rank& self, bool blocks, bool registered, double after_s) {
  const Buffer data(bytes, registered);
  std::memset(data.data(), 0, bytes);
  pithComm_t comm = self.join();
  ok(sum(comm, data.data()));
  self.meet();
  std::jthread aborter;
  const pithResult_t result = blocks ? interrupt_blocking(self, comm, data.data(), after_s, aborter)
                                     : interrupt_request(self, comm, data.data(), after_s);
  // Not every byte: that takes so long that those who go on would be done before.
  for (std::size_t i = 0; i < bytes; i += apart) data.data()[i] = scribble;
  ensure(result == pithSuccess || result == pithRemoteError, "code " + std::to_string(result));
  sleep_s(0.02);
  for (std::size_t i = 0; i < bytes; i += apart) {
    ensure(data.data()[i] == scribble, "written after the call had returned");
  }
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
      for (const bool blocks : {false, true}) {
        INFO(ranks << " ranks, after " << after_s << " s" << (blocks ? ", blocking" : ""));
        const auto body = [=](bool registered) {
          return [=](Rank& self) { abort_in_the_middle(self, blocks, registered, after_s); };
        };
        CHECK(run(ranks, shm, body(true)) == "");
        CHECK(run(ranks, copies, body(false)) == "");
        CHECK(run(ranks, local, body(false)) == "");
      }
    }
  }
}
