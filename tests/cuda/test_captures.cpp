// What captures cost for how long, how many there may be, and ranks that disagree about them.
#include <malloc.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <string>

#include "cuda/stream_gate.hpp"
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

// Numbers of captured calls, half of which are given once.
constexpr int numbers = 131'072;
constexpr int at_once = 1024;

using Calls = std::function<pithResult_t(CUstream)>;

CUgraph capture(const Rank& rank, int times, const Calls& calls) {
  CUgraph graph = nullptr;
  OK(cu().capture_begin(rank.stream, kCaptureThreadLocal));
  bool well = true;
  for (int i = 0; i < times; ++i) well &= calls(rank.stream) == pithSuccess;
  REQUIRE(well);
  OK(cu().capture_end(rank.stream, &graph));
  return graph;
}

// Keeps `kept` graphs and destroys the oldest or the newest one for each that comes.
void capture_and_destroy(const Rank& rank, int times, const Calls& calls, std::size_t kept,
                         bool oldest_first) {
  std::deque<CUgraph> graphs;
  for (int captured = 0; captured < times || !graphs.empty(); captured += at_once) {
    const int more = std::clamp(times - captured, 0, at_once);
    if (more > 0 && graphs.size() <= kept) graphs.push_back(capture(rank, more, calls));
    if (more > 0 && graphs.size() <= kept) continue;
    if (oldest_first) std::swap(graphs.front(), graphs.back());
    OK(cu().graph_destroy(graphs.back()));
    graphs.pop_back();
  }
}

std::unique_ptr<Graph> instantiate(CUgraph graph) {
  auto made = std::make_unique<Graph>(graph);
  OK(cu().graph_destroy(graph));
  return made;
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

TEST_CASE("captured calls without a number are refused, and nothing is captured") {
  const test::Device device;
  World world(2);
  const Rank& rank = *world.ranks[0];
  const Calls call = [&](CUstream stream) { return allreduce(rank, rank.send, rank.recv, stream); };
  std::vector<CUgraph> graphs;
  for (int captured = 0; captured < numbers; captured += at_once) {
    graphs.push_back(capture(rank, at_once, call));
  }
  CUgraph graph = nullptr;
  OK(cu().capture_begin(rank.stream, kCaptureThreadLocal));
  CHECK(call(rank.stream) == pithInvalidUsage);
  const std::string text = pithGetLastError(nullptr);
  INFO(text);
  CHECK(text.find("131072 at a time") != std::string::npos);
  CHECK(text.find("to be gone before 65536 more are captured") != std::string::npos);
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
  // The one whose turn it is: the driver tells a while after this.
  OK(cu().graph_destroy(std::exchange(graphs[numbers / at_once / 2], nullptr)));
  OK(cu().graph_destroy(capture(rank, 1, call)));
  for (const CUgraph held : graphs) {
    if (held) OK(cu().graph_destroy(held));
  }
}

TEST_CASE("numbers of captured calls come again, at other times on each rank") {
  const test::Device device;
  World world(3);
  const auto on_all = [&](const auto& action) {
    for (std::size_t r = 0; r < world.ranks.size(); ++r) action(*world.ranks[r], r);
  };
  const auto replay = [&](const Graphs& graphs, unsigned round) {
    on_all([&](const Rank& rank, std::size_t r) {
      fill(rank.send, r, round);
      OK(cu().graph_launch(graphs[r]->exec, rank.stream));
    });
    world.finish(false);
    on_all([&](const Rank& rank, std::size_t) { REQUIRE(holds_sum(rank.recv, 3, round)); });
  };
  const Graphs kept = capture_all(world);
  replay(kept, 1);
  for (unsigned lap = 0; lap < 3; ++lap) {
    Graphs graphs(3);
    on_all([&](const Rank& rank, std::size_t r) {
      const Calls call = [&](CUstream stream) {
        return allreduce(rank, rank.send, rank.recv, stream);
      };
      capture_and_destroy(rank, numbers / 2 - 1, call, 20 * r, r == 1);
      graphs[r] = instantiate(capture(rank, rank.send, rank.recv));
    });
    for (unsigned i = 0; i <= lap; ++i) replay(graphs, 10 * lap + i);
    replay(kept, lap);
  }
}

TEST_CASE("numbers of captured messages come again while the receiver is in an older replay") {
  const test::Device device;
  World world(3);
  constexpr std::size_t words = 16;
  const Rank& from = *world.ranks[0];
  const Rank& to = *world.ranks[1];
  const Calls send = [&](CUstream stream) {
    return pithSend(from.other_send.as<void>(), words, pithUint32, 1, from.comm, stream);
  };
  const Calls receive = [&](CUstream stream) {
    return pithRecv(to.other_recv.as<void>(), words, pithUint32, 0, to.comm, stream);
  };
  std::uint64_t passes = 0;
  Words passed(2);
  const auto replay = [&](const Rank& rank, const Graph& graph) {
    OK(cu().graph_launch(graph.exec, rank.stream));
    const std::size_t at = &rank == &from ? 0 : 1;
    OK(cu().write_value64(rank.stream, passed.at(at), ++passes, 0));
    while (passed[at].load(std::memory_order_acquire) != passes) std::this_thread::yield();
  };
  // Short messages go at once: the sender is through before the receiver has begun.
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  for (unsigned lap = 0; lap < 3; ++lap) {
    const auto graph = instantiate(capture(from, 1, send));
    for (int i = 0; i < 5; ++i) {
      from.other_send.as<std::uint32_t>()[words - 1] = ++sent;
      replay(from, *graph);
    }
    capture_and_destroy(from, numbers / 2 - 1, send, 3, false);
  }
  for (unsigned lap = 0; lap < 3; ++lap) {
    const auto graph = instantiate(capture(to, 1, receive));
    for (int i = 0; i < 5; ++i) {
      replay(to, *graph);
      REQUIRE(to.other_recv.as<std::uint32_t>()[words - 1] == ++received);
    }
    capture_and_destroy(to, numbers / 2 - 1, receive, 30, true);
  }
  // Who has sent nothing counts its collectives like the others.
  const Graphs graphs = capture_all(world);
  for (std::size_t r = 0; r < 3; ++r) {
    fill(world.ranks[r]->send, r, 3);
    OK(cu().graph_launch(graphs[r]->exec, world.ranks[r]->stream));
  }
  world.finish(false);
  for (const auto& rank : world.ranks) CHECK(holds_sum(rank->recv, 3, 3));
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

namespace {

struct Counted : StreamEntry {
  Counted() {
    gone = [](StreamEntry& self) { static_cast<Counted&>(self).is_gone = true; };
  }
  bool is_gone = false;
};

}  // namespace

TEST_CASE("a call that is captured while its graphs go is gone with them") {
  const test::Device device;
  const Stream captured;
  const Stream eager;
  StreamGate gate(**pith::cuda::Device::of_stream(captured), nullptr);
  Counted first;
  Counted second;
  struct Starting : StreamEntry {
    std::function<void()> meanwhile;
  } other;
  OK(cu().capture_begin(captured, kCaptureRelaxed));
  REQUIRE_FALSE(gate.enqueue(captured, first));
  gate.publish(first);
  gate.progress();
  // While whoever drives the engine starts another call.
  other.meanwhile = [&] {
    REQUIRE_FALSE(gate.enqueue(captured, second));
    gate.publish(second);
    CUgraph graph = nullptr;
    OK(cu().capture_end(captured, &graph));
    OK(cu().graph_destroy(graph));
  };
  other.started = [](StreamEntry& self) {
    static_cast<Starting&>(self).meanwhile();
    StreamGate::open(self);
  };
  REQUIRE_FALSE(gate.enqueue(eager, other));
  gate.publish(other);
  for (int ms = 0; ms < 5000 && !(first.is_gone && second.is_gone); ++ms) {
    gate.progress();
    sleep_ms(1);
  }
  CHECK(first.is_gone);
  CHECK(second.is_gone);
  gate.close(other);
}
