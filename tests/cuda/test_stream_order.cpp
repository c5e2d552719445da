// The order of a communicator's calls on several streams, without events between them.
#include <algorithm>
#include <chrono>
#include <random>

#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

void set(const DeviceMemory& memory, unsigned char byte) {
  std::memset(memory.as<void>(), byte, count * 4);
}

// Without a call that synchronises; a stream that is held back is not to hang the test.
bool passes(CUstream stream) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (cu().stream_query(stream) == kErrorNotReady) {
    if (std::chrono::steady_clock::now() > until) return false;
    sleep_ms(1);
  }
  return true;
}

bool holds_multiple(const DeviceMemory& memory, std::size_t ranks, unsigned round,
                    std::uint32_t factor) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) sum += value(r, i, round);
    if (memory.as<std::uint32_t>()[i] != factor * sum) return false;
  }
  return true;
}

void hold(CUstream stream, const Words& words, std::size_t word, std::uint64_t value) {
  OK(cu().wait_value64(stream, words.at(word), value, kWaitValueGeq));
}

void release(const Words& words, std::size_t word, std::uint64_t value = 1) {
  words[word].store(value, std::memory_order_release);
}

// Rank by rank: the second call takes what the first one gives.
void enqueue_chain(const Rank& rank) {
  REQUIRE(allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess);
  REQUIRE(allreduce(rank, rank.recv, rank.other_recv, rank.other) == pithSuccess);
}

}  // namespace

TEST_CASE("a call finds the results of the one before it on another stream") {
  const test::Device device;
  const char* algorithm = GENERATE("allreduce:ring", "allreduce:one_shot", "allreduce:two_shot");
  INFO(algorithm);
  constexpr std::size_t n = 3;
  World world(n, algorithm);
  const Words words(1);
  for (std::size_t r = 0; r < n; ++r) {
    Rank& rank = *world.ranks[r];
    fill(rank.send, r, 1);
    set(rank.recv, 0x11);
    set(rank.other_recv, 0x5A);
    hold(rank.stream, words, 0, 1);
    enqueue_chain(rank);
  }
  sleep_ms(20);
  for (const auto& rank : world.ranks) {
    CHECK(cu().stream_query(rank->other) == kErrorNotReady);
    CHECK(rank->other_recv.as<std::uint32_t>()[0] == 0x5A5A5A5Au);
  }
  release(words, 0);
  world.finish();
  for (const auto& rank : world.ranks) {
    CHECK(holds_sum(rank->recv, n, 1));
    CHECK(holds_multiple(rank->other_recv, n, 1, n));
  }
}

TEST_CASE("streams reach their calls in another order on each rank") {
  const test::Device device;
  World world(2);
  const Words words(2);
  for (unsigned round = 1; round <= 20; ++round) {
    for (std::size_t r = 0; r < 2; ++r) {
      Rank& rank = *world.ranks[r];
      fill(rank.send, r, round);
      hold(r == round % 2 ? rank.stream : rank.other, words, r, round);
      enqueue_chain(rank);
    }
    sleep_ms(2);
    release(words, round / 2 % 2, round);
    sleep_ms(2);
    release(words, 1 - round / 2 % 2, round);
    world.finish();
    INFO("round " << round);
    for (const auto& rank : world.ranks) REQUIRE(holds_multiple(rank->other_recv, 2, round, 2));
  }
}

TEST_CASE("a group waits for the calls before it on all its streams") {
  const test::Device device;
  World world(2);
  const Words words(2);
  const DeviceMemory last[2] = {DeviceMemory(count * 4), DeviceMemory(count * 4)};
  for (std::size_t r = 0; r < 2; ++r) {
    Rank& rank = *world.ranks[r];
    fill(rank.send, r, 1);
    fill(rank.other_send, r, 2);
    set(rank.recv, 0);
    set(rank.other_recv, 0);
    // Before the group: on a stream that none of it uses, were it not for the order.
    hold(rank.stream, words, 0, 1);
    REQUIRE(allreduce(rank, rank.send, rank.send, rank.stream) == pithSuccess);
    hold(rank.stream, words, 1, 1);
  }
  REQUIRE(pithGroupStart() == pithSuccess);
  for (const auto& rank : world.ranks) {
    REQUIRE(allreduce(*rank, rank->other_send, rank->recv, rank->stream) == pithSuccess);
    REQUIRE(allreduce(*rank, rank->send, rank->other_recv, rank->other) == pithSuccess);
  }
  REQUIRE(pithGroupEnd() == pithSuccess);
  sleep_ms(20);
  for (const auto& rank : world.ranks) CHECK(cu().stream_query(rank->other) == kErrorNotReady);
  // The stream of its first call is held again, and the other one with it.
  release(words, 0);
  for (std::size_t r = 0; r < 2; ++r) {
    const Rank& rank = *world.ranks[r];
    REQUIRE(allreduce(rank, rank.recv, last[r], rank.other) == pithSuccess);
  }
  sleep_ms(20);
  for (const auto& rank : world.ranks) {
    CHECK(cu().stream_query(rank->other) == kErrorNotReady);
    CHECK(rank->recv.as<std::uint32_t>()[0] == 0);
    CHECK(rank->other_recv.as<std::uint32_t>()[0] == 0);
  }
  release(words, 1);
  world.finish();
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(holds_sum(world.ranks[r]->recv, 2, 2));
    CHECK(holds_multiple(world.ranks[r]->other_recv, 2, 1, 2));
    CHECK(holds_multiple(last[r], 2, 2, 2));
  }
}

namespace {

// A message to the first rank on one stream, a sum of both on another one, which that rank groups.
// Captured, they are replayed.
struct Grouped {
  explicit Grouped(bool captured) {
    if (!captured) return;
    group_graph = capture(first.stream, [this] {
      const Event fork;
      const Event join;
      OK(cu().event_record(fork, first.stream));
      OK(cu().stream_wait_event(first.other, fork, 0));
      enqueue_group();
      OK(cu().event_record(join, first.other));
      OK(cu().stream_wait_event(first.stream, join, 0));
    });
    sum_graph = capture(second.stream, [this] { enqueue_sum(); });
    send_graph = capture(second.other, [this] { enqueue_send(); });
  }
  template <class Calls>
  static std::unique_ptr<Graph> capture(CUstream stream, const Calls& calls) {
    CUgraph graph = nullptr;
    OK(cu().capture_begin(stream, kCaptureRelaxed));
    calls();
    OK(cu().capture_end(stream, &graph));
    auto exec = std::make_unique<Graph>(graph);
    OK(cu().graph_destroy(graph));
    return exec;
  }
  void enqueue_group() const {
    hold(first.other, words, 0, 1);
    REQUIRE(pithGroupStart() == pithSuccess);
    REQUIRE(pithRecv(first.recv.as<void>(), count, pithUint32, 1, first.comm,
                     first.stream.handle) == pithSuccess);
    REQUIRE(allreduce(first, first.other_send, first.other_recv, first.other) == pithSuccess);
    REQUIRE(pithGroupEnd() == pithSuccess);
    OK(cu().write_value64(first.other, words.at(1), 1, 0));
  }
  void enqueue_sum() const {
    REQUIRE(allreduce(second, second.other_send, second.other_recv, second.stream) == pithSuccess);
  }
  void enqueue_send() const {
    REQUIRE(pithSend(second.send.as<void>(), count, pithUint32, 0, second.comm,
                     second.other.handle) == pithSuccess);
  }
  static bool replay(const std::unique_ptr<Graph>& graph, CUstream stream) {
    if (graph) OK(cu().graph_launch(graph->exec, stream));
    return graph != nullptr;
  }
  void group() const {
    if (!replay(group_graph, first.stream)) enqueue_group();
  }
  void sum() const {
    if (!replay(sum_graph, second.stream)) enqueue_sum();
  }
  void send() const {
    if (!replay(send_graph, second.other)) enqueue_send();
  }
  void begin(unsigned round) const {
    fill(second.send, 1, round);
    fill(first.other_send, 0, round);
    fill(second.other_send, 1, round);
    set(first.recv, 0);
    set(first.other_recv, 0);
    words[1].store(0);
  }
  bool is_received(unsigned round) const {
    return first.recv.as<std::uint32_t>()[count - 1] == value(1, count - 1, round);
  }
  std::uint64_t behind() const { return words[1].load(std::memory_order_acquire); }

  World world{2};
  Rank& first = *world.ranks[0];
  Rank& second = *world.ranks[1];
  const Words words{2};  // what the group's second stream waits for, and writes when it goes on
  std::unique_ptr<Graph> group_graph, sum_graph, send_graph;
};

}  // namespace

TEST_CASE("the streams of a group begin it together, and leave it together") {
  const test::Device device;
  const bool captured = GENERATE(false, true);
  INFO((captured ? "captured" : "eager"));
  Grouped calls(captured);
  // The message is there, but the stream of the sum has other things to do. Once it goes on, the
  // sum needs the message to be received: calls of a group do not wait for each other.
  calls.begin(1);
  calls.group();
  calls.send();
  calls.sum();
  sleep_ms(20);
  CHECK(calls.first.recv.as<std::uint32_t>()[0] == 0);
  release(calls.words, 0);
  calls.world.finish();
  CHECK(calls.is_received(1));
  CHECK(holds_sum(calls.first.other_recv, 2, 1));
  CHECK(calls.behind() == 1);
  // The sum is there, as the other rank's shows, but not the message.
  calls.begin(2);
  calls.group();
  calls.sum();
  REQUIRE(passes(calls.second.stream));
  sleep_ms(20);
  CHECK(calls.behind() == 0);
  calls.send();
  calls.world.finish();
  CHECK(holds_sum(calls.first.other_recv, 2, 2));
  CHECK(calls.is_received(2));
  CHECK(calls.behind() == 1);
}

TEST_CASE("a stream waits for its own messages of a group") {
  const test::Device device;
  const World world(2);
  const Words words(1);
  const Rank& first = *world.ranks[0];
  const Rank& second = *world.ranks[1];
  const auto receive = [&](const DeviceMemory& memory, CUstream stream) {
    return pithRecv(memory.as<void>(), count, pithUint32, 1, first.comm, stream);
  };
  REQUIRE(pithGroupStart() == pithSuccess);
  REQUIRE(receive(first.recv, first.stream) == pithSuccess);
  REQUIRE(receive(first.other_recv, first.other) == pithSuccess);
  REQUIRE(pithGroupEnd() == pithSuccess);
  OK(cu().write_value64(first.other, words.at(0), 1, 0));
  sleep_ms(20);
  CHECK(words[0].load() == 0);
  fill(second.send, 1, 1);
  for (int message = 0; message < 2; ++message) {
    REQUIRE(pithSend(second.send.as<void>(), count, pithUint32, 0, second.comm, second.stream) ==
            pithSuccess);
  }
  CHECK(passes(first.other));
  const std::uint32_t last = value(1, count - 1, 1);
  CHECK(first.other_recv.as<std::uint32_t>()[count - 1] == last);
  CHECK(words[0].load() == 1);
}

TEST_CASE("abort ends calls that are held back, here and by another rank") {
  const test::Device device;
  const bool own = GENERATE(true, false);
  INFO((own ? "own abort" : "the other rank's"));
  World world(2);
  Rank& rank = *world.ranks[0];
  const Words words(1);
  // Rank 1 calls nothing; the stream of the first call is held until the end.
  hold(rank.stream, words, 0, 1);
  enqueue_chain(rank);
  REQUIRE(allreduce(rank, rank.other_recv, rank.other_recv, rank.other) == pithSuccess);
  sleep_ms(20);
  CHECK(cu().stream_query(rank.other) == kErrorNotReady);
  pithComm_t& comm = world.ranks[own ? 0 : 1]->comm;
  REQUIRE(pithCommAbort(comm) == pithSuccess);
  comm = nullptr;
  CHECK(passes(rank.other));
  release(words, 0);
  CHECK(passes(rank.stream));
}

TEST_CASE("1,000 calls on four streams, each of another's result") {
  const test::Device device;
  constexpr std::size_t n = 3;
  constexpr std::uint64_t calls = 1000;
  const unsigned seed = 20261123;
  INFO("seed " << seed);
  World world(n);
  const Words words(1);
  const Words passed(4 * n);
  std::vector<std::unique_ptr<Stream>> streams;
  for (std::size_t s = 0; s < 4 * n; ++s) streams.push_back(std::make_unique<Stream>());
  for (std::size_t r = 0; r < n; ++r) fill(world.ranks[r]->send, r, seed);
  std::mt19937 random(seed);
  std::uint32_t factor = 1;
  for (std::uint64_t call = 1; call <= calls; ++call) {
    const auto pick = [&](unsigned choices) { return random() % choices; };
    for (std::size_t r = 0; r < n; ++r) {
      const CUstream stream = *streams[4 * r + pick(4)];  // another one on each rank
      // Until some later call has been enqueued.
      if (pick(8) == 0) hold(stream, words, 0, std::min(calls, call + pick(6)));
      const DeviceMemory& memory = world.ranks[r]->send;
      REQUIRE(allreduce(*world.ranks[r], memory, memory, stream) == pithSuccess);
    }
    if (call > 1) factor *= n;
    release(words, 0, call);
  }
  for (std::size_t s = 0; s < 4 * n; ++s) {
    OK(cu().write_value64(*streams[s], passed.at(s), 1, 0));
  }
  for (std::size_t s = 0; s < 4 * n; ++s) {
    while (passed[s].load(std::memory_order_acquire) != 1) std::this_thread::yield();
  }
  for (const auto& rank : world.ranks) CHECK(holds_multiple(rank->send, n, seed, factor));
}
