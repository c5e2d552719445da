#include <thread>

#include "catch.hpp"
#include "transport/local/local.hpp"
#include "transport/ring_support.hpp"

namespace {

using namespace pith_test;
using pith::LocalHub;
using pith::LocalTransport;

// Runs body(rank) in a thread per rank; the first failure's text, or nothing.
template <class Body>
std::string run_ranks(int ranks, const RingShape& shape, Body body) {
  auto hub = LocalHub::create(ranks, shape);
  if (!hub) return hub.error().message();
  std::vector<std::string> failures(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Rank self(rank, ranks);
        LocalTransport transport(self.scheduler, self.mailbox, rank, *hub);
        self.transport = &transport;
        body(self);
      } catch (const std::exception& failure) {
        failures[static_cast<std::size_t>(rank)] = failure.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) {
    if (!failure.empty()) return failure;
  }
  return {};
}

}  // namespace

TEST_CASE("local: two threads, every path, tiny rings", "[shm]") {
  CHECK(run_ranks(2, tiny_shape(), [](Rank& self) { check_all(self, 300000); }).empty());
}

TEST_CASE("local: two threads, long messages, default rings", "[shm]") {
  const auto body = [](Rank& self) { check_all(self, std::size_t{8} << 20); };
  CHECK(run_ranks(2, RingShape(), body) == "");
}

TEST_CASE("local: five ranks, everyone to everyone", "[shm]") {
  constexpr int ranks = 5;
  const auto body = [](Rank& self) { check_everyone_to_everyone(self, ranks, 9000); };
  CHECK(run_ranks(ranks, tiny_shape(), body) == "");
}

TEST_CASE("local: any host memory is reachable", "[shm]") {
  const auto body = [](Rank& self) {
    const int peer = 1 - self.rank();
    std::vector<std::byte> mine = pattern(5000, static_cast<unsigned>(self.rank()));
    const MemoryHandle handle = self.transport->expose(peer, {mine.data(), mine.size()});
    must(handle.reach == MemoryHandle::Reach::load_store, "not exposed");
    std::vector<std::byte> text(sizeof handle.where);
    std::memcpy(text.data(), &handle.where, text.size());
    self.send(peer, 1, text);
    ReceiveOp& got = self.receive(peer, 1, text.size());
    self.wait(got);
    MemoryHandle theirs;
    theirs.reach = MemoryHandle::Reach::load_store;
    std::memcpy(&theirs.where, got.data.data(), sizeof theirs.where);
    const auto expected = pattern(5000, static_cast<unsigned>(peer));
    must(std::memcmp(self.transport->map(peer, theirs), expected.data(), 5000) == 0, "differs");
    self.meet(peer, 2);
    Bytes device = {mine.data(), mine.size(), MemoryKind::cuda};
    must(self.transport->expose(peer, device).reach == MemoryHandle::Reach::none,
         "exposed a device");
  };
  CHECK(run_ranks(2, RingShape(), body) == "");
}
