// What workers take from a device, and give back: memory, blocks; and what becomes of their calls
// where a device has no room for them, or fails.
#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "tests/cuda/worker_calls.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;
using pith::Fence;
using pith::MemoryKind;

namespace {

pith::cuda::Device& device_of(CUstream stream) {
  const auto found = pith::cuda::Device::of_stream(stream);
  REQUIRE(found);
  return **found;
}

// The blocks that all workers of a device have together, but for those with one.
unsigned share_of(pith::cuda::Device& device) {
  const auto kernels = device.kernels();
  REQUIRE(kernels);
  return std::max((*kernels)->multiprocessors() / 4, 8U);
}

// Takes what a device has to spare of what queues need: then it has some if one gave it back.
class Drained {
 public:
  explicit Drained(pith::cuda::Device& device) : device_(device) {
    while (has_boards() || has_ring()) {
    }
  }
  ~Drained() {
    for (const auto& block : taken_) device_.give_block(block.kind, block.data, block.bytes);
  }
  Drained(const Drained&) = delete;
  bool has_boards() { return has(MemoryKind::cuda, WorkerQueue::boards_bytes); }
  bool has_ring() { return has(MemoryKind::host, WorkerQueue::ring_bytes); }

 private:
  bool has(MemoryKind kind, std::size_t bytes) {
    const std::uint64_t allocs = counters().allocs;
    taken_.push_back({kind, device_.take_block(kind, bytes), bytes});
    return counters().allocs == allocs;
  }
  pith::cuda::Device& device_;
  std::vector<pith::cuda::Device::Block> taken_;
};

// A call that is abandoned.
struct Abandoned : StreamEntry {
  explicit Abandoned(StreamGate& g) : gate(g) {}
  static void end(StreamEntry& self) {
    StreamGate::open(self);
    static_cast<Abandoned&>(self).gate.close(self);
  }
  StreamGate& gate;
};

void sleep_until(const std::function<bool()>& done) {
  for (int ms = 0; ms < 10'000 && !done(); ++ms) sleep_ms(1);
}

}  // namespace

TEST_CASE("the memory of workers comes back once streams have passed their abandoned calls") {
  const test::Device context;
  const Stream stream;
  const Words hold(1);
  std::optional<Queue> queue(std::in_place, 2U);
  OK(cu().wait_value64(stream, hold.at(0), 1, kWaitValueGeq));
  Abandoned call(*queue->gate);
  REQUIRE_FALSE(queue->gate->enqueue(stream, call));
  queue->gate->publish(call);
  queue->gate->abandon(Abandoned::end);
  Drained device(device_of(stream));
  queue.reset();  // waits for nobody
  CHECK_FALSE(device.has_boards());
  CHECK_FALSE(device.has_ring());
  hold[0].store(1, std::memory_order_release);
  OK(cu().stream_synchronize(stream));
  CHECK(device.has_boards());
  CHECK(device.has_ring());
}

TEST_CASE("the memory of captured workers comes back when their graphs are gone") {
  const test::Device context;
  const Stream stream;
  std::optional<Queue> queue(std::in_place, 2U);
  Abandoned call(*queue->gate);
  OK(cu().capture_begin(stream, kCaptureThreadLocal));
  REQUIRE_FALSE(queue->gate->enqueue(stream, call));
  CUgraph graph = nullptr;
  OK(cu().capture_end(stream, &graph));
  std::optional<Graph> exec(std::in_place, graph);
  OK(cu().graph_destroy(graph));
  Drained device(device_of(stream));
  queue.reset();
  CHECK_FALSE(device.has_boards());
  CHECK_FALSE(device.has_ring());
  exec.reset();
  CHECK(device.has_boards());
  CHECK(device.has_ring());
}

TEST_CASE("workers of many queues have no more than their part of a device together") {
  renew_device();
  const test::Device context;
  constexpr unsigned wanted = 3;
  constexpr std::size_t length = 100'000;
  std::array<Queue, 5> queues{Queue(wanted), Queue(wanted), Queue(wanted), Queue(wanted),
                              Queue(wanted)};
  // What earlier ones leave, and one where they leave nothing.
  unsigned left = share_of(device_of(queues[0].streams[0]));
  unsigned most = 0;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const unsigned got = std::clamp(left, 1u, wanted);
    left -= std::min(left, got);
    most += got;
  }
  const DeviceMemory sum(length * 4);
  const DeviceMemory one(length * 4);
  ones(one, length);
  for (unsigned round = 1; round <= 3; ++round) {
    pithStubReset();
    std::vector<std::unique_ptr<GatedCall>> calls;
    for (Queue& queue : queues) calls.push_back(std::make_unique<GatedCall>(queue, round % 3));
    sleep_until([&] { return counters().blocks_together >= most; });
    sleep_ms(5);
    CHECK(counters().blocks_together == most);
    for (const auto& call : calls) {
      std::memset(sum.as<void>(), 0, length * 4);
      call->queue.wait(call->queue.add(sum, one, length));
      CHECK(all_are(sum, length, 1));
    }
    for (const auto& call : calls) call->queue.wait(call->end());
    for (const Queue& queue : queues) OK(cu().stream_synchronize(queue.streams[round % 3]));
  }
}

TEST_CASE("the blocks of a worker that find room run all steps, and late ones leave") {
  renew_device();
  const test::Device context;
  const unsigned there = GENERATE(1U, 2U);
  constexpr unsigned blocks = 5;
  constexpr unsigned steps = 20;
  constexpr std::size_t length = 100'000;
  Queue queue(blocks);
  const Stream& stream = queue.streams[0];
  const DeviceMemory sum(length * 4);
  const DeviceMemory one(length * 4);
  std::memset(sum.as<void>(), 0, length * 4);
  ones(one, length);
  const auto run_steps = [&] {
    Fence last;
    for (unsigned step = 0; step < steps; ++step) last = queue.add(sum, one, length);
    queue.wait(last);
  };
  // One board after the other, and the same again.
  for (unsigned round = 1; round <= 3; ++round) {
    pithStubReset();
    pithStubRoomForBlocks(there);
    GatedCall call(queue, 0);
    run_steps();
    CHECK(counters().blocks_together <= there);
    pithStubRoomForBlocks(there + 1);
    run_steps();
    queue.wait(call.end());
    REQUIRE(all_are(sum, length, 2 * steps * round));
    CHECK(cu().stream_query(stream) == kErrorNotReady);
    pithStubRoomForBlocks(0);
    OK(cu().stream_synchronize(stream));
  }
}

TEST_CASE("the host opens for a worker that cannot be told to leave") {
  const test::Device device;
  Queue queue(2);
  const DeviceMemory memory(64);
  GatedCall call(queue, 0);
  pithStubFailAfter(0);
  cu().write_value64(queue.streams[1], Words(1).at(0), 1, 0);
  while (cu().stream_query(queue.streams[1]) == kErrorNotReady) std::this_thread::yield();
  while (!queue.compute->error()) {  // until the ring is full
    queue.compute->run<pith::CopyKernel>({memory.as<std::byte>(), memory.as<std::byte>() + 32, 32});
  }
  queue.wait(queue.compute->open_after_all(call));
  queue.wait(queue.compute->open(call));
  CHECK(load_word(StreamGate::end_of(call)) == call.value);
  queue.gate->close(call);
  pithStubReset();
}

TEST_CASE("a device that fails while workers run ends all calls of all streams") {
  const test::Device device;
  const ByWorkers by_workers;
  World world(2);
  const Words hold(1);
  const Rank& late = *world.ranks[1];
  for (const CUstream stream : {late.stream.handle, late.other.handle}) {
    OK(cu().wait_value64(stream, hold.at(0), 1, kWaitValueGeq));
  }
  for (const auto& rank : world.ranks) {
    for (int call = 0; call < 2; ++call) {
      REQUIRE(allreduce(*rank, rank->send, rank->recv, rank->stream) == pithSuccess);
      REQUIRE(allreduce(*rank, rank->other_send, rank->other_recv, rank->other) == pithSuccess);
    }
  }
  // The first rank's run by now, and wait for the other's.
  sleep_until([] { return counters().blocks_together > 0; });
  pithStubFailAfter(0);
  {
    const Stream failing;
    OK(cu().write_value64(failing, hold.at(0), 1, 0));
    CHECK(cu().stream_synchronize(failing) == kErrorLaunchFailed);
  }
  for (const auto& rank : world.ranks) {
    CHECK(cu().stream_synchronize(rank->stream) == kErrorLaunchFailed);
    CHECK(cu().stream_synchronize(rank->other) == kErrorLaunchFailed);
    pithResult_t state = pithSuccess;
    while (state == pithSuccess) {
      sleep_ms(1);
      REQUIRE(pithCommGetAsyncError(rank->comm, &state) == pithSuccess);
    }
    CHECK(allreduce(*rank, rank->send, rank->recv, rank->stream) != pithSuccess);
  }
  for (const auto& rank : world.ranks) {
    CHECK(pithCommDestroy(rank->comm) == pithSuccess);
    rank->comm = nullptr;
  }
  pithStubReset();
}
