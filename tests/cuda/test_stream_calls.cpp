// Calls on streams through the C API: when they start and end, capture, failure.
#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

TEST_CASE("the steady state allocates nothing and synchronises nothing") {
  const test::Device device;
  World world(2);
  const auto call_all = [&](unsigned round) {
    for (std::size_t r = 0; r < 2; ++r) {
      Rank& rank = *world.ranks[r];
      fill(rank.send, r, round);
      fill(rank.other_send, r, round + 1);
      REQUIRE(allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess);
      REQUIRE(allreduce(rank, rank.other_send, rank.other_recv, rank.other) == pithSuccess);
    }
    world.finish();
    for (const auto& rank : world.ranks) {
      REQUIRE(holds_sum(rank->recv, 2, round));
      REQUIRE(holds_sum(rank->other_recv, 2, round + 1));
    }
  };
  call_all(0);
  pithStubStrict(Strict::fail, 100);
  pithStubReset();
  for (unsigned round = 1; round < 50; ++round) call_all(round);
  const StubCounters after = counters();
  CHECK(after.allocs == 0);
  CHECK(after.frees == 0);
  CHECK(after.syncs == 0);
  CHECK(after.queries < 50);  // one for a stream that gives no sign for long, on a busy machine
  CHECK(after.host_functions == 0);
  CHECK(after.calls_from_host_functions == 0);
}

// What a rank gives the driver for a call of 8 bytes, however many ranks there are: start and end,
// one kernel, and words for who waits. Nothing goes by way of the host. The median of the calls,
// because on a busy machine a rank may wait where it usually need not, and that takes a word more.
TEST_CASE("a short call costs few operations", "[launches]") {
  const test::Device device;
  const std::size_t ranks = GENERATE(2, 4);
  World world(static_cast<int>(ranks));
  const auto call = [&] {
    for (const auto& rank : world.ranks) {
      REQUIRE(pithAllReduce(rank->send.as<void>(), rank->recv.as<void>(), 2, pithFloat32, pithSum,
                            rank->comm, rank->stream) == pithSuccess);
    }
    world.finish(false);
  };
  for (int warm_up = 0; warm_up < 5; ++warm_up) call();
  const auto host_copies = counters().host_copies;
  std::vector<std::uint64_t> given(21);
  for (std::uint64_t& operations : given) {
    const auto before = counters().launches;
    call();
    operations = counters().launches - before;
  }
  std::ranges::sort(given);
  CHECK(given[given.size() / 2] <= 8 * ranks);  // finish() writes a word a rank
  CHECK(counters().host_copies == host_copies);
}

TEST_CASE("a peer's failure lets streams go on, replays included, and the error stays") {
  const test::Device device;
  World world(2);
  Rank& rank = *world.ranks[0];
  OK(cu().capture_begin(rank.stream, kCaptureGlobal));
  REQUIRE(allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess);
  CUgraph graph = nullptr;
  OK(cu().capture_end(rank.stream, &graph));
  const Graph exec(graph);
  OK(cu().graph_destroy(graph));
  REQUIRE(allreduce(rank, rank.send, rank.recv, rank.other) == pithSuccess);
  REQUIRE(pithCommAbort(world.ranks[1]->comm) == pithSuccess);
  world.ranks[1]->comm = nullptr;
  OK(cu().stream_synchronize(rank.other));
  CHECK(allreduce(rank, rank.send, rank.recv, rank.other) == pithRemoteError);
  OK(cu().graph_launch(exec.exec, rank.stream));
  OK(cu().graph_launch(exec.exec, rank.stream));
  OK(cu().stream_synchronize(rank.stream));
}

TEST_CASE("calls of a group are enqueued when it ends") {
  const test::Device device;
  World world(2);
  REQUIRE(pithGroupStart() == pithSuccess);
  for (std::size_t r = 0; r < 2; ++r) {
    Rank& rank = *world.ranks[r];
    fill(rank.send, r, 3);
    fill(rank.other_send, r, 4);
    REQUIRE(allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess);
    REQUIRE(allreduce(rank, rank.other_send, rank.other_recv, rank.stream) == pithSuccess);
  }
  CHECK(cu().stream_query(world.ranks[0]->stream) == kSuccess);
  REQUIRE(pithGroupEnd() == pithSuccess);
  world.finish();
  for (const auto& rank : world.ranks) {
    CHECK(holds_sum(rank->recv, 2, 3));
    CHECK(holds_sum(rank->other_recv, 2, 4));
  }
}

TEST_CASE("all streams of a group are in one capture, or none is") {
  const test::Device device;
  World world(2);
  // One rank's two calls; the other rank makes none.
  Rank& rank = *world.ranks[0];
  const auto call_both = [&] {
    REQUIRE(pithGroupStart() == pithSuccess);
    REQUIRE(allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess);
    REQUIRE(pithSend(rank.other_send.as<void>(), count, pithUint32, 1, rank.comm,
                     rank.other.handle) == pithSuccess);
    return pithGroupEnd();
  };
  CUgraph graph = nullptr;
  OK(cu().capture_begin(rank.stream, kCaptureRelaxed));
  CHECK(call_both() == pithInvalidUsage);
  CHECK(std::string(pithGetLastError(nullptr)).find("in one capture") != std::string::npos);
  OK(cu().capture_begin(rank.other, kCaptureRelaxed));
  CHECK(call_both() == pithInvalidUsage);
  CHECK(std::string(pithGetLastError(nullptr)).find("another capture") != std::string::npos);
  // Nothing of it has begun, and the captures are as they were.
  for (const CUstream stream : {rank.other.handle, rank.stream.handle}) {
    OK(cu().capture_end(stream, &graph));
    std::size_t nodes = 1;
    OK(cu().graph_nodes(graph, nullptr, &nodes));
    CHECK(nodes == 0);
    OK(cu().graph_destroy(graph));
    OK(cu().stream_query(stream));
  }
  // In one capture they go.
  std::vector<std::unique_ptr<Graph>> graphs;
  for (std::size_t r = 0; r < 2; ++r) {
    Rank& one = *world.ranks[r];
    const Event fork;
    const Event join;
    fill(one.send, r, 6);
    fill(one.other_send, r, 7);
    OK(cu().capture_begin(one.stream, kCaptureRelaxed));
    OK(cu().event_record(fork, one.stream));
    OK(cu().stream_wait_event(one.other, fork, 0));
    REQUIRE(pithGroupStart() == pithSuccess);
    REQUIRE(allreduce(one, one.send, one.recv, one.stream) == pithSuccess);
    REQUIRE(allreduce(one, one.other_send, one.other_recv, one.other) == pithSuccess);
    REQUIRE(pithGroupEnd() == pithSuccess);
    OK(cu().event_record(join, one.other));
    OK(cu().stream_wait_event(one.stream, join, 0));
    OK(cu().capture_end(one.stream, &graph));
    graphs.push_back(std::make_unique<Graph>(graph));
    OK(cu().graph_destroy(graph));
  }
  for (std::size_t r = 0; r < 2; ++r)
    OK(cu().graph_launch(graphs[r]->exec, world.ranks[r]->stream));
  world.finish();
  for (const auto& one : world.ranks) {
    CHECK(holds_sum(one->recv, 2, 6));
    CHECK(holds_sum(one->other_recv, 2, 7));
  }
}

TEST_CASE("memory and stream must suit each other") {
  const test::Device device;
  World world(2);
  Rank& rank = *world.ranks[0];
  std::vector<std::uint32_t> plain(count);
  CHECK(pithAllReduce(plain.data(), rank.recv.as<void>(), count, pithUint32, pithSum, rank.comm,
                      rank.stream.handle) == pithInvalidArgument);
  CHECK(pithAllReduce(plain.data(), rank.recv.as<void>(), count, pithUint32, pithSum, rank.comm,
                      nullptr) == pithInvalidArgument);
}

TEST_CASE("one rank copies in stream order") {
  const test::Device device;
  World world(1);
  Rank& rank = *world.ranks[0];
  fill(rank.send, 0, 5);
  Words hold(1);
  OK(cu().wait_value64(rank.stream, hold.at(0), 1, kWaitValueGeq));
  std::memset(rank.recv.as<void>(), 0, count * 4);
  REQUIRE(allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess);
  CHECK(rank.recv.as<std::uint32_t>()[0] == 0);
  hold[0].store(1, std::memory_order_release);
  world.finish();
  CHECK(holds_sum(rank.recv, 1, 5));
}
