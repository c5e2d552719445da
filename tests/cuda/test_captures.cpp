// What captures cost for how long, how many there may be, and ranks that disagree about them.
#include <malloc.h>

#include <string>

#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

// One allreduce of a rank.
CUgraph capture(const Rank& rank, const DeviceMemory& send, const DeviceMemory& recv) {
  CUgraph graph = nullptr;
  OK(cu().capture_begin(rank.stream, kCaptureThreadLocal));
  REQUIRE(allreduce(rank, send, recv, rank.stream) == pithSuccess);
  OK(cu().capture_end(rank.stream, &graph));
  return graph;
}

using Graphs = std::vector<std::unique_ptr<Graph>>;

Graphs capture_all(const World& world) {
  Graphs graphs;
  for (const auto& rank : world.ranks) {
    const CUgraph graph = capture(*rank, rank->send, rank->recv);
    graphs.push_back(std::make_unique<Graph>(graph));
    OK(cu().graph_destroy(graph));
  }
  return graphs;
}

}  // namespace

TEST_CASE("what 2,000 captures took is used again when their graphs are gone") {
  const test::Device device;
  constexpr unsigned rounds = 2000;
  constexpr unsigned warm = 400;
  World world(2);
  std::uint64_t allocs = 0;
  std::size_t heap = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    if (round == warm) {
      allocs = counters().allocs;
      heap = mallinfo2().uordblks;
    }
    const Graphs graphs = capture_all(world);
    if (round % 10 != 0) continue;
    for (std::size_t r = 0; r < 2; ++r) {
      fill(world.ranks[r]->send, r, round);
      OK(cu().graph_launch(graphs[r]->exec, world.ranks[r]->stream));
    }
    world.finish(false);
    for (const auto& rank : world.ranks) REQUIRE(holds_sum(rank->recv, 2, round));
  }
  // An instantiation counts as one. Who drives the engine may be late with a few of them.
  CHECK(counters().allocs <= allocs + 2 * (rounds - warm) + 2);
  CHECK(mallinfo2().uordblks < heap + (std::size_t{256} << 10));
}

TEST_CASE("a replay stays whole though its graph is destroyed before it begins") {
  const test::Device device;
  World world(2);
  Words gate(1);
  for (unsigned round = 1; round <= 20; ++round) {
    Graphs first = capture_all(world);
    for (std::size_t r = 0; r < 2; ++r) {
      fill(world.ranks[r]->send, r, round);
      OK(cu().wait_value64(world.ranks[r]->stream, gate.at(0), round, kWaitValueGeq));
      OK(cu().graph_launch(first[r]->exec, world.ranks[r]->stream));
    }
    first.clear();
    sleep_ms(1);
    // It would take the place of the first, were that forgotten.
    Graphs second;
    for (std::size_t r = 0; r < 2; ++r) {
      Rank& rank = *world.ranks[r];
      fill(rank.other_send, r, round + 100);
      OK(cu().capture_begin(rank.other, kCaptureThreadLocal));
      REQUIRE(allreduce(rank, rank.other_send, rank.other_recv, rank.other) == pithSuccess);
      CUgraph graph = nullptr;
      OK(cu().capture_end(rank.other, &graph));
      second.push_back(std::make_unique<Graph>(graph));
      OK(cu().graph_destroy(graph));
      OK(cu().graph_launch(second[r]->exec, rank.other));
    }
    gate[0].store(round, std::memory_order_release);
    world.finish();
    for (const auto& rank : world.ranks) {
      REQUIRE(holds_sum(rank->recv, 2, round));
      REQUIRE(holds_sum(rank->other_recv, 2, round + 100));
    }
  }
}

TEST_CASE("more captured calls than there are numbers are refused, and nothing is captured") {
  const test::Device device;
  constexpr int most = 131'072;
  constexpr int at_once = 1024;
  World world(2);
  const Rank& rank = *world.ranks[0];
  CUgraph graph = nullptr;
  for (int captured = 0; captured < most; captured += at_once) {
    OK(cu().capture_begin(rank.stream, kCaptureThreadLocal));
    bool well = true;
    for (int i = 0; i < at_once; ++i) {
      well &= allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess;
    }
    REQUIRE(well);
    OK(cu().capture_end(rank.stream, &graph));
    OK(cu().graph_destroy(graph));
  }
  OK(cu().capture_begin(rank.stream, kCaptureThreadLocal));
  CHECK(allreduce(rank, rank.send, rank.recv, rank.stream) == pithInvalidUsage);
  CHECK(std::string(pithGetLastError(nullptr)).find("can have 131072 calls captured") !=
        std::string::npos);
  OK(cu().capture_end(rank.stream, &graph));
  std::size_t nodes = 1;
  OK(cu().graph_nodes(graph, nullptr, &nodes));
  CHECK(nodes == 0);
  OK(cu().graph_destroy(graph));
  // Eager ones have numbers of their own.
  for (std::size_t r = 0; r < 2; ++r) {
    Rank& one = *world.ranks[r];
    fill(one.send, r, 5);
    REQUIRE(allreduce(one, one.send, one.recv, one.stream) == pithSuccess);
  }
  world.finish(false);
  for (const auto& one : world.ranks) CHECK(holds_sum(one->recv, 2, 5));
}

TEST_CASE("a call captured on one rank and eager on another is an error on both") {
  const test::Device device;
  setenv("PITH_TIMEOUT", "4", 1);
  World world(2);
  unsetenv("PITH_TIMEOUT");
  const Rank& one = *world.ranks[0];
  const Rank& other = *world.ranks[1];
  const CUgraph captured = capture(one, one.send, one.recv);
  Graph graph(captured);
  OK(cu().graph_destroy(captured));
  OK(cu().graph_launch(graph.exec, one.stream));
  REQUIRE(allreduce(other, other.send, other.recv, other.stream) == pithSuccess);
  world.finish(false);
  for (const auto& rank : world.ranks) {
    pithResult_t state = pithSuccess;
    REQUIRE(pithCommGetAsyncError(rank->comm, &state) == pithSuccess);
    CHECK(state == pithInvalidUsage);
    const std::string text = pithGetLastError(rank->comm);
    INFO(text);
    CHECK(text.find("rank 0 captured allreduce of 3000 uint32, sum in a graph, rank 1 did not") !=
          std::string::npos);
  }
}
