// Messages of pairs on streams, captured too, and scalars in device memory. All collectives on a
// device: tests/api, whose bodies test_api_device runs there.
#include <chrono>

#include "api/comm_handle.hpp"
#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

struct Buffers {
  explicit Buffers(std::size_t rank, std::size_t ranks) : send(ranks), recv(ranks) {
    for (std::size_t b = 0; b < ranks; ++b) {
      for (std::size_t i = 0; i < count; ++i) send.at(b)[i] = value_of(rank, b, i);
    }
  }
  Blocks send;
  Blocks recv;
};

std::vector<std::unique_ptr<Buffers>> buffers_of(const World& world) {
  std::vector<std::unique_ptr<Buffers>> all;
  for (std::size_t r = 0; r < world.ranks.size(); ++r) {
    all.push_back(std::make_unique<Buffers>(r, world.ranks.size()));
  }
  return all;
}

// To the next rank and from the previous one, on one stream; collectives on both sides of it.
void pass_round(Rank& rank, Buffers& memory, int self, int n, bool first) {
  const auto sum = [&] {
    REQUIRE(pithAllReduce(memory.send.at(1), memory.recv.at(1), count, pithUint32, pithSum,
                          rank.comm, rank.stream.handle) == pithSuccess);
  };
  REQUIRE(pithGroupStart() == pithSuccess);
  if (first) sum();
  REQUIRE(pithSend(memory.send.at(), count, pithUint32, (self + 1) % n, rank.comm,
                   rank.stream.handle) == pithSuccess);
  REQUIRE(pithRecv(memory.recv.at(), count, pithUint32, (self + n - 1) % n, rank.comm,
                   rank.stream.handle) == pithSuccess);
  if (!first) sum();
  REQUIRE(pithGroupEnd() == pithSuccess);
}

bool has_passed(const Buffers& memory, std::size_t self, std::size_t n) {
  for (std::size_t i = 0; i < count; ++i) {
    if (memory.recv.at()[i] != value_of((self + n - 1) % n, 0, i)) return false;
    if (memory.recv.at(1)[i] != sum_of(n, 1, i)) return false;
  }
  return true;
}

// What a shrink would count from. A stream goes on a moment before its call is recorded.
bool completes(pithComm_t comm, std::uint64_t call) {
  pith::Communicator& communicator = *comm->communicator;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::uint64_t last = 0;
  while (last != call && std::chrono::steady_clock::now() < until) {
    communicator.engine().own();
    last = communicator.calls().journal().last_completed();
    communicator.engine().disown();
  }
  return last == call;
}

}  // namespace

TEST_CASE("messages round the ring, on streams") {
  const test::Device device;
  const int n = GENERATE(2, 3, 4);
  INFO(n << " ranks");
  World world(n);
  const auto ranks = static_cast<std::size_t>(n);
  for (int round = 0; round < 20; ++round) {
    if (round == 1) {
      pithStubStrict(Strict::fail, 100);
      pithStubReset();
    }
    const auto before = counters().allocs;
    const auto memory = buffers_of(world);
    const auto own = counters().allocs - before;  // the test's
    for (std::size_t r = 0; r < ranks; ++r) {
      pass_round(*world.ranks[r], *memory[r], static_cast<int>(r), n, (r + 1) % 2 == 0);
    }
    world.finish();
    if (round > 0) CHECK(counters().allocs - before == own);
    for (std::size_t r = 0; r < ranks; ++r) CHECK(has_passed(*memory[r], r, ranks));
  }
  for (const auto& rank : world.ranks) CHECK(completes(rank->comm, 20));
}

TEST_CASE("captured messages are replayed among eager ones") {
  const test::Device device;
  constexpr std::size_t n = 2;
  World world(n);
  const auto captured = buffers_of(world);
  std::vector<std::unique_ptr<Graph>> graphs;
  for (std::size_t r = 0; r < n; ++r) {
    Rank& rank = *world.ranks[r];
    OK(cu().capture_begin(rank.stream, kCaptureGlobal));
    pass_round(rank, *captured[r], static_cast<int>(r), n, true);
    CUgraph graph = nullptr;
    OK(cu().capture_end(rank.stream, &graph));
    graphs.push_back(std::make_unique<Graph>(graph));
    OK(cu().graph_destroy(graph));
  }
  const auto eager = buffers_of(world);
  for (int round = 0; round < 100; ++round) {
    for (std::size_t r = 0; r < n; ++r) {
      for (const auto* memory : {captured[r].get(), eager[r].get()}) {
        std::fill_n(memory->recv.at(), n * count, 0u);
      }
      // In another order on each rank.
      if (r == 0) OK(cu().graph_launch(graphs[r]->exec, world.ranks[r]->stream));
      if (round % 3 == 0) {
        REQUIRE(pithGroupStart() == pithSuccess);
        REQUIRE(pithSend(eager[r]->send.at(), count, pithUint32, static_cast<int>(1 - r),
                         world.ranks[r]->comm, world.ranks[r]->other.handle) == pithSuccess);
        REQUIRE(pithRecv(eager[r]->recv.at(), count, pithUint32, static_cast<int>(1 - r),
                         world.ranks[r]->comm, world.ranks[r]->other.handle) == pithSuccess);
        REQUIRE(pithGroupEnd() == pithSuccess);
      }
      if (r != 0) OK(cu().graph_launch(graphs[r]->exec, world.ranks[r]->stream));
    }
    world.finish();
    bool right = true;
    for (std::size_t r = 0; r < n; ++r) {
      right &= has_passed(*captured[r], r, n);
      for (std::size_t i = 0; i < count && round % 3 == 0; ++i) {
        right &= eager[r]->recv.at()[i] == value_of(1 - r, 0, i);
      }
    }
    INFO("round " << round);
    REQUIRE(right);
  }
}

// A scalar in device memory is read when the stream gets there.
TEST_CASE("premultiplied sums on device memory") {
  const test::Device device;
  const int n = GENERATE(1, 2, 3);
  INFO(n << " ranks");
  World world(n);
  const auto ranks = static_cast<std::size_t>(n);
  const auto memory = buffers_of(world);
  Words hold(1);
  std::vector<std::unique_ptr<DeviceMemory>> scalars;
  for (std::size_t r = 0; r < ranks; ++r) {
    Rank& rank = *world.ranks[r];
    scalars.push_back(std::make_unique<DeviceMemory>(4));
    *scalars.back()->as<std::uint32_t>() = 999;
    pithRedOp_t op = pithSum;
    REQUIRE(pithRedOpCreatePreMulSum(&op, scalars.back()->as<void>(), pithUint32, pithScalarDevice,
                                     rank.comm) == pithSuccess);
    OK(cu().wait_value64(rank.stream, hold.at(0), 1, kWaitValueGeq));
    REQUIRE(pithAllReduce(memory[r]->send.at(), memory[r]->recv.at(), count, pithUint32, op,
                          rank.comm, rank.stream.handle) == pithSuccess);
    std::uint32_t plain[2] = {1, 1};
    CHECK(pithAllReduce(plain, plain, 2, pithUint32, op, rank.comm, nullptr) ==
          pithInvalidArgument);
    CHECK(std::string(pithGetLastError(nullptr)).find("scalar in device memory") !=
          std::string::npos);
    REQUIRE(pithRedOpDestroy(op, rank.comm) == pithSuccess);
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    *scalars[r]->as<std::uint32_t>() = static_cast<std::uint32_t>(r) + 2;
  }
  hold[0].store(1, std::memory_order_release);
  world.finish();
  bool right = true;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      sum += value_of(r, 0, i) * (static_cast<std::uint32_t>(r) + 2);
    }
    for (std::size_t r = 0; r < ranks; ++r) right &= memory[r]->recv.at()[i] == sum;
  }
  CHECK(right);
}
