// Workers: kernels that run the steps of calls on the caller's stream.
#include <optional>
#include <random>

#include "core/kernel_args.hpp"
#include "cuda/stream_gate.hpp"
#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;
using pith::DType;
using pith::Expected;
using pith::Fence;
using pith::Op;

namespace {

// Calls by hand: a queue with workers, and streams that get to passages.
struct Queue {
  explicit Queue(unsigned blocks) {
    const auto found = pith::cuda::Device::of_stream(streams[0]);
    REQUIRE(found);
    Expected<std::unique_ptr<CudaCompute>> made = CudaCompute::create(**found, blocks);
    INFO(made.error().message());
    REQUIRE(made);
    compute = std::move(*made);
    gate = std::make_unique<StreamGate>(**found, compute->workers());
  }
  void wait(Fence fence) {
    while (!compute->reached(fence)) {
      compute->progress();
      std::this_thread::yield();
    }
  }
  Fence add(const DeviceMemory& to, const DeviceMemory& what, std::size_t count) {
    return compute->run<pith::ReduceKernel>({to.as<std::byte>(), to.as<std::byte>(),
                                             what.as<std::byte>(), count, DType::u32, Op::sum,
                                             false});
  }
  Stream streams[3];
  std::unique_ptr<CudaCompute> compute;
  std::unique_ptr<StreamGate> gate;
};

struct Call : Passage {
  explicit Call(Queue& q, std::size_t stream) : queue(q) {
    started = [](Passage& self) { static_cast<Call&>(self).has_started = true; };
    REQUIRE_FALSE(queue.gate->enqueue(queue.streams[stream], *this));
    queue.gate->publish(*this);
    while (!has_started) {
      queue.gate->progress();
      queue.compute->progress();
      std::this_thread::yield();
    }
    queue.compute->enter(*this);
  }
  // Its stream goes on.
  Fence end() {
    const Fence last = queue.compute->open_after_all(*this);
    queue.gate->close(*this);
    return last;
  }
  Queue& queue;
  bool has_started = false;
};

void ones(const DeviceMemory& memory, std::size_t count) {
  std::fill_n(memory.as<std::uint32_t>(), count, 1u);
}

bool all_are(const DeviceMemory& memory, std::size_t count, std::uint32_t value) {
  const auto* const words = memory.as<std::uint32_t>();
  return std::all_of(words, words + count, [&](std::uint32_t word) { return word == value; });
}

class ByWorkers {
 public:
  ByWorkers() {
    setenv("PITH_CUDA_STEPS", "worker", 1);
    setenv("PITH_CUDA_BLOCKS", "2", 1);
  }
  ~ByWorkers() {
    unsetenv("PITH_CUDA_STEPS");
    unsetenv("PITH_CUDA_BLOCKS");
  }
};

// A call of both ranks, for which the stream of the second waits for a word.
void issue_held(World& world, const Words& hold, unsigned round) {
  OK(cu().wait_value64(world.ranks[1]->stream, hold.at(0), round, kWaitValueGeq));
  for (std::size_t r = 0; r < 2; ++r) {
    const Rank& rank = *world.ranks[r];
    fill(rank.send, r, round);
    REQUIRE(allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess);
    OK(cu().write_value64(rank.stream, world.passed.at(2 * r), round, 0));
  }
}

void await(const World& world, unsigned round) {
  for (const std::size_t i : {0U, 2U}) {
    while (world.passed[i].load(std::memory_order_acquire) < round) std::this_thread::yield();
  }
}

}  // namespace

TEST_CASE("a worker runs more steps than its ring holds, in order, with any number of blocks") {
  const test::Device device;
  const unsigned blocks = GENERATE(1U, 2U, 5U);
  const std::size_t length = GENERATE(std::size_t{1}, std::size_t{1000}, std::size_t{100000});
  Queue queue(blocks);
  const DeviceMemory sum(length * 4);
  const DeviceMemory one(length * 4);
  const DeviceMemory copy(length * 4);
  std::memset(sum.as<void>(), 0, length * 4);
  ones(one, length);
  Call call(queue, 0);
  const unsigned steps = length > 1000 ? 50 : 500;
  for (unsigned step = 0; step < steps; ++step) {
    queue.add(sum, one, length);
    queue.compute->run<pith::CopyKernel>({copy.as<std::byte>(), sum.as<std::byte>(), length * 4});
    if (step % 7 == 0) {
      queue.wait(queue.add(copy, one, length));
      REQUIRE(all_are(copy, length, step + 2));
    }
  }
  CHECK(cu().stream_query(queue.streams[0]) == kErrorNotReady);
  const Fence last = call.end();
  OK(cu().stream_synchronize(queue.streams[0]));
  CHECK(queue.compute->reached(last));
  CHECK(all_are(sum, length, steps));
  CHECK(all_are(copy, length, steps + (steps % 7 == 1 ? 1 : 0)));
}

TEST_CASE("workers hand over to each other, and launches come before and after them") {
  const test::Device device;
  const unsigned seed = GENERATE(range(1U, 6U));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Queue queue(1 + seed % 3);
  constexpr std::size_t length = 5000;
  const DeviceMemory sum(length * 4);
  const DeviceMemory one(length * 4);
  std::memset(sum.as<void>(), 0, length * 4);
  ones(one, length);
  std::array<std::optional<Call>, 3> calls;
  std::uint32_t expected = 0;
  Fence last;
  for (int round = 0; round < 600; ++round) {
    std::optional<Call>& call = calls.at(random() % calls.size());
    const auto stream = static_cast<std::size_t>(&call - calls.data());
    if (random() % 4 != 0) {
      last = queue.add(sum, one, length);
      ++expected;
    } else if (call) {
      last = call->end();
      call.reset();
    } else {
      call.emplace(queue, stream);
    }
    if (random() % 16 == 0) {
      queue.wait(last);
      REQUIRE(all_are(sum, length, expected));
    }
  }
  for (std::optional<Call>& call : calls) {
    if (call) last = call->end();
  }
  queue.wait(last);
  CHECK(all_are(sum, count, expected));
  for (const Stream& stream : queue.streams) OK(cu().stream_synchronize(stream));
}

TEST_CASE("a worker ends with its device") {
  const test::Device device;
  Queue queue(2);
  const DeviceMemory memory(64);
  Call call(queue, 0);
  const auto copy = [&] {
    return queue.compute->run<pith::CopyKernel>(
        {memory.as<std::byte>(), memory.as<std::byte>() + 32, 32});
  };
  queue.wait(copy());
  pithStubFailAfter(0);
  cu().write_value64(queue.streams[1], Words(1).at(0), 1, 0);
  while (cu().stream_query(queue.streams[1]) == kErrorNotReady) std::this_thread::yield();
  struct : pith::FenceWait {
    bool seen = false;
  } wait;
  wait.fence = copy();
  wait.reached = [](pith::FenceWait& self) { static_cast<decltype(wait)&>(self).seen = true; };
  queue.compute->notify(wait);
  while (!wait.seen) {
    queue.compute->progress();
    std::this_thread::yield();
  }
  CHECK(queue.compute->error().code() == pith::Code::cuda);
  // Nor does who has more steps than fit.
  for (int i = 0; i < 200; ++i) copy();
  queue.wait(call.end());
  pithStubReset();
}

TEST_CASE("a call that a worker runs gives the driver nothing once it has begun") {
  const test::Device device;
  const ByWorkers by_workers;
  const char* algorithm = GENERATE("allreduce:ring", "allreduce:two_shot");
  World world(2, algorithm);
  const Words hold(1);
  issue_held(world, hold, 1);
  hold[0].store(1, std::memory_order_release);
  await(world, 1);
  issue_held(world, hold, 2);
  const StubCounters before = counters();
  hold[0].store(2, std::memory_order_release);
  await(world, 2);
  const StubCounters after = counters();
  CHECK(after.launches == before.launches);
  CHECK(after.allocs == before.allocs);
  CHECK(after.syncs == before.syncs);
  for (const auto& rank : world.ranks) CHECK(holds_sum(rank->recv, 2, 2));
}

TEST_CASE("a worker's call ends while a thread that frees memory has the driver") {
  const test::Device device;
  const ByWorkers by_workers;
  World world(2);
  const Words hold(1);
  issue_held(world, hold, 1);
  hold[0].store(1, std::memory_order_release);
  await(world, 1);
  CUdeviceptr memory = 0;
  OK(cu().mem_alloc(&memory, 64));
  issue_held(world, hold, 2);
  pithStubLocks(true);
  std::thread frees([&] {
    CHECK(cu().ctx_set_current(device.context) == kSuccess);
    CHECK(cu().mem_free(memory) == kSuccess);
    cu().ctx_set_current(nullptr);
  });
  sleep_ms(20);  // it has the driver, and waits for the streams
  hold[0].store(2, std::memory_order_release);
  await(world, 2);
  frees.join();
  pithStubLocks(false);
  for (const auto& rank : world.ranks) CHECK(holds_sum(rank->recv, 2, 2));
}

TEST_CASE("a message to oneself goes between pageable memory and a device's, whoever copies") {
  const test::Device device;
  const char* steps = GENERATE("launch", "worker");
  setenv("PITH_CUDA_STEPS", steps, 1);
  World world(2);
  unsetenv("PITH_CUDA_STEPS");
  const Rank& rank = *world.ranks[0];
  constexpr std::size_t many = 700'001;
  const DeviceMemory there(many);
  std::vector<char> from(many);
  std::vector<char> back(many);
  for (std::size_t i = 0; i < many; ++i) from[i] = static_cast<char>(i * 31);
  REQUIRE(pithGroupStart() == pithSuccess);
  REQUIRE(pithSend(from.data(), many, pithInt8, 0, rank.comm, rank.stream) == pithSuccess);
  REQUIRE(pithRecv(there.as<void>(), many, pithInt8, 0, rank.comm, rank.stream) == pithSuccess);
  REQUIRE(pithGroupEnd() == pithSuccess);
  OK(cu().stream_synchronize(rank.stream));
  REQUIRE(std::memcmp(there.as<void>(), from.data(), many) == 0);
  REQUIRE(pithGroupStart() == pithSuccess);
  REQUIRE(pithSend(there.as<void>(), many, pithInt8, 0, rank.comm, rank.stream) == pithSuccess);
  REQUIRE(pithRecv(back.data(), many, pithInt8, 0, rank.comm, rank.stream) == pithSuccess);
  REQUIRE(pithGroupEnd() == pithSuccess);
  OK(cu().stream_synchronize(rank.stream));
  CHECK(back == from);
  CHECK(counters().pageable_copies == 0);
}

TEST_CASE("workers refuse memory of another device, wherever the call comes from") {
  const ByWorkers by_workers;
  std::unique_ptr<DeviceMemory> far;
  {
    const test::Device second(1);
    far = std::make_unique<DeviceMemory>(count * 4);
  }
  const test::Device first;
  World world(2);
  const Rank& rank = *world.ranks[0];
  const auto refused = [&](pithResult_t result) {
    CHECK(result == pithInvalidUsage);
    CHECK(says("is another device's than the stream"));
    CHECK(says("PITH_CUDA_STEPS"));
  };
  refused(allreduce(rank, rank.send, *far, rank.stream));
  refused(allreduce(rank, *far, rank.recv, rank.stream));
  REQUIRE(pithGroupStart() == pithSuccess);
  allreduce(rank, rank.send, *far, rank.stream);
  refused(pithGroupEnd());
  OK(cu().capture_begin(rank.stream, kCaptureThreadLocal));
  refused(allreduce(rank, rank.send, *far, rank.stream));
  CUgraph graph = nullptr;
  OK(cu().capture_end(rank.stream, &graph));
  cu().graph_destroy(graph);
  const Words hold(1);
  hold[0].store(1, std::memory_order_release);
  issue_held(world, hold, 1);
  await(world, 1);
  for (const auto& one : world.ranks) CHECK(holds_sum(one->recv, 2, 1));
}

TEST_CASE("workers that run at once have a part of the device, later ones a block each") {
  {
    const test::Device used;
    pithStubRenewContext();  // streams of a device that has failed keep what they were granted
  }
  const test::Device context;
  const Stream stream;
  const Expected<pith::cuda::Device*> found = pith::cuda::Device::of_stream(stream);
  REQUIRE(found);
  pith::cuda::Device& device = **found;
  const Expected<const KernelSet*> kernels = device.kernels();
  REQUIRE(kernels);
  const unsigned all = std::max((*kernels)->multiprocessors() / 4, 8u);
  std::vector<pith::cuda::Device::Turn> turns;
  for (int i = 0; i < 3; ++i) {
    const auto turn = device.take_slot();
    REQUIRE(turn);
    turns.push_back(*turn);
  }
  const auto end = [](const pith::cuda::Device::Turn& turn) {
    std::atomic_ref(turn.slot->start).store(turn.value, std::memory_order_release);
  };
  CHECK(device.grant_blocks(turns[0], all) == all);
  CHECK(device.grant_blocks(turns[1], 2) == 1);
  end(turns[0]);
  CHECK(device.grant_blocks(turns[1], 2) == 2);
  CHECK(device.grant_blocks(turns[2], all - 1) == 1);
  CHECK(device.grant_blocks(turns[2], all - 2) == all - 2);
  for (std::size_t i = 1; i < turns.size(); ++i) end(turns[i]);
  for (const auto& turn : turns) device.give_slot(turn);
}
