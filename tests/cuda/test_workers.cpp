// Workers: kernels that run the steps of calls on the caller's stream.
#include <array>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>
#include <string_view>
#include <thread>

#include "tests/cuda/worker_calls.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;
using pith::Expected;
using pith::Fence;

namespace {

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

// A call that is held for so long, and those that `queue` puts behind it, end while a thread that
// frees memory has the driver.
template <class Queue>
void end_beside_free(World& world, const test::Device& device, int held_ms, bool queries_wait,
                     const Queue& queue) {
  const Words hold(1);
  issue_held(world, hold, 1);
  hold[0].store(1, std::memory_order_release);
  await(world, 1);
  CUdeviceptr memory = 0;
  OK(cu().mem_alloc(&memory, 64));
  issue_held(world, hold, 2);
  queue();
  pithStubLocks(true, queries_wait);
  CUresult freed = kErrorNotReady;
  std::thread frees([&] {
    cu().ctx_set_current(device.context);
    freed = cu().mem_free(memory);
    cu().ctx_set_current(nullptr);
  });
  sleep_ms(held_ms);  // it has the driver, and waits for the streams
  hold[0].store(2, std::memory_order_release);
  await(world, 2);
  frees.join();
  CHECK(freed == kSuccess);
  pithStubLocks(false);
}

// With one of its arguments in memory that is far.
pithResult_t sparse_allreduce(const Rank& rank, const DeviceMemory& far,
                              std::string_view argument) {
  pithCompressor_t compressor = nullptr;
  REQUIRE(pithCompressorCreate(&compressor, "topk:density=0.05,bypass=never") == pithSuccess);
  const DeviceMemory near(count * 8);
  const DeviceMemory n(8);
  const auto at = [&](std::string_view name, const DeviceMemory& memory) -> void* {
    return (name == argument ? far : memory).as<void>();
  };
  const pithResult_t result = pithAllReduceCompressedSparse(
      at("send", rank.send), static_cast<std::uint64_t*>(at("indices", near)),
      at("values", rank.recv), count, static_cast<std::size_t*>(at("n", n)), count, pithFloat32,
      pithSum, compressor, rank.comm, rank.stream);
  pithCompressorDestroy(compressor);
  return result;
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
  GatedCall call(queue, 0);
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
  std::array<std::optional<GatedCall>, 3> calls;
  std::uint32_t expected = 0;
  Fence last;
  for (int round = 0; round < 600; ++round) {
    std::optional<GatedCall>& call = calls.at(random() % calls.size());
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
  for (std::optional<GatedCall>& call : calls) {
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
  GatedCall call(queue, 0);
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
  World world(2, GENERATE(as<const char*>(), nullptr, "allreduce:ring", "allreduce:one_shot",
                          "allreduce:two_shot"));
  end_beside_free(world, device, 20, true, [] {});
  for (const auto& rank : world.ranks) CHECK(holds_sum(rank->recv, 2, 2));
}

// After a tenth of a second without a step it is asked whether the device has failed.
TEST_CASE(
    "a worker's calls end though a peer is late and a thread that frees memory has the driver") {
  const test::Device device;
  const ByWorkers by_workers;
  World world(2);
  end_beside_free(world, device, 500, GENERATE(true, false), [&] {
    for (const auto& rank : world.ranks) {
      REQUIRE(allreduce(*rank, rank->send, rank->recv, rank->stream) == pithSuccess);
    }
  });
  world.finish(false);
  for (const auto& rank : world.ranks) CHECK(holds_sum(rank->recv, 2, 2));
}

TEST_CASE("a call gets scratch and ends while another thread waits for the driver's memory") {
  const test::Device device;
  Queue queue(2);
  pith::cuda::Device& shared = **pith::cuda::Device::of_stream(queue.streams[0]);
  GatedCall call(queue, 0);
  CUdeviceptr memory = 0;
  OK(cu().mem_alloc(&memory, 64));
  REQUIRE_FALSE(queue.compute->scratch().reserve(1));
  pithStubLocks(true);
  const auto with_context = [&](const std::function<void()>& work) {
    return std::thread([&, work] {
      cu().ctx_set_current(device.context);
      work();
      cu().ctx_set_current(nullptr);
    });
  };
  std::vector<std::thread> waiting;
  CUresult freed = kErrorNotReady;
  pith::Error reserved;
  waiting.push_back(with_context([&] { freed = cu().mem_free(memory); }));
  sleep_ms(20);  // it has the driver, and waits for the streams
  waiting.push_back(
      with_context([&] { reserved = queue.compute->scratch().reserve(std::size_t{64} << 20); }));
  std::vector<pith::cuda::Device::Turn> turns;
  waiting.push_back(with_context([&] {
    for (int i = 0; i < 300; ++i) turns.push_back(*shared.take_slot());
  }));
  std::vector<Slot*> slots;
  waiting.push_back(with_context([&] {
    for (int i = 0; i < 300; ++i) slots.push_back(*shared.take_fresh_slot());
  }));
  sleep_ms(20);  // they have got to the driver
  std::atomic<bool> ended{false};
  std::thread engine([&] {
    std::byte* const scratch = queue.compute->take_scratch(1000);
    queue.compute->give_scratch(scratch, 1000);
    call.end();
    ended = true;
  });
  for (int ms = 0; ms < 5000 && !ended; ++ms) sleep_ms(1);
  CHECK(ended);
  pithStubLocks(false);
  engine.join();
  for (std::thread& thread : waiting) thread.join();
  CHECK(freed == kSuccess);
  CHECK_FALSE(reserved);
  for (pith::cuda::Device::Turn turn : turns) shared.give_slot({turn.slot, turn.value - 1});
  for (Slot* const slot : slots) shared.give_fresh_slot(slot);
}

TEST_CASE("a message to oneself goes between pageable memory and a device's, whoever copies") {
  const test::Device device;
  const char* const steps = GENERATE("launch", "worker");
  const pith::test::Variable chosen("PITH_CUDA_STEPS", steps);
  World world(2);
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
  const auto refused = [&](const char* argument, pithResult_t result) {
    CHECK(result == pithInvalidUsage);
    std::array<char, 64> text;
    std::snprintf(text.data(), text.size(), "%s is %p, another device's", argument,
                  far->as<void>());
    CHECK(says(text.data()));
    CHECK(says("expected the same one's where workers run the steps of calls (PITH_CUDA_STEPS)"));
  };
  refused("recv", allreduce(rank, rank.send, *far, rank.stream));
  refused("send", allreduce(rank, *far, rank.recv, rank.stream));
  REQUIRE(pithGroupStart() == pithSuccess);
  allreduce(rank, rank.send, *far, rank.stream);
  refused("recv", pithGroupEnd());
  refused("send", pithSend(far->as<void>(), count, pithUint32, 1, rank.comm, rank.stream));
  refused("recv", pithRecv(far->as<void>(), count, pithUint32, 1, rank.comm, rank.stream));
  pithRedOp_t scaled = pithSum;
  REQUIRE(pithRedOpCreatePreMulSum(&scaled, far->as<void>(), pithUint32, pithScalarDevice,
                                   rank.comm) == pithSuccess);
  refused("the scalar of op", pithAllReduce(rank.send.as<void>(), rank.recv.as<void>(), count,
                                            pithUint32, scaled, rank.comm, rank.stream));
  CHECK(pithRedOpDestroy(scaled, rank.comm) == pithSuccess);
  for (const char* argument : {"send", "indices", "values", "n"}) {
    refused(argument, sparse_allreduce(rank, *far, argument));
  }
  for (const auto& one : world.ranks) {  // of nothing there is nothing to reach
    CHECK(pithAllReduce(far->as<void>(), far->as<void>(), 0, pithUint32, pithSum, one->comm,
                        one->stream) == pithSuccess);
  }
  OK(cu().capture_begin(rank.stream, kCaptureThreadLocal));
  refused("recv", allreduce(rank, rank.send, *far, rank.stream));
  CUgraph graph = nullptr;
  OK(cu().capture_end(rank.stream, &graph));
  cu().graph_destroy(graph);
  const Words hold(1);
  hold[0].store(1, std::memory_order_release);
  issue_held(world, hold, 1);
  await(world, 1);
  for (const auto& one : world.ranks) CHECK(holds_sum(one->recv, 2, 1));
}

TEST_CASE(
    "streams with workers share a part of the device, calls that queue on one have the same") {
  renew_device();
  const test::Device context;
  const Stream one;
  const Stream other;
  const Expected<pith::cuda::Device*> found = pith::cuda::Device::of_stream(one);
  REQUIRE(found);
  pith::cuda::Device& device = **found;
  const Expected<const KernelSet*> kernels = device.kernels();
  REQUIRE(kernels);
  const unsigned all = std::max((*kernels)->multiprocessors() / 4, 8u);
  std::vector<pith::cuda::Device::Turn> turns;
  const auto grant = [&](CUstream stream, unsigned wanted) {
    const auto turn = device.take_slot();
    REQUIRE(turn);
    turns.push_back(*turn);
    return device.grant_blocks(*turn, stream, wanted);
  };
  const auto end = [&](std::size_t which) {
    std::atomic_ref(turns[which].slot->start).store(turns[which].value, std::memory_order_release);
  };
  for (int queued = 0; queued < 4; ++queued) CHECK(grant(one, all) == all);
  CHECK(grant(other, all) == 1);      // nothing is left
  CHECK(grant(one, all) == all / 2);  // from now on both have half
  for (std::size_t i = 0; i < 4; ++i) end(i);
  CHECK(grant(other, all) == all / 2);
  CHECK(grant(one, 2) == 2);
  for (std::size_t i = 4; i < turns.size(); ++i) end(i);
  CHECK(grant(other, all) == all);
  end(turns.size() - 1);
  for (const auto& turn : turns) device.give_slot(turn);
}

// Loops of a compiler become such graphs, whose iterations the device decides on.
TEST_CASE("the body of a conditional node takes calls whose steps workers run, and no others") {
  const test::Device device;
  const bool workers = GENERATE(true, false);
  const pith::test::Variable steps("PITH_CUDA_STEPS", workers ? "worker" : "launch");
  World world(2);
  std::vector<std::unique_ptr<Graph>> bodies;
  for (const auto& rank : world.ranks) {
    OK(cu().capture_begin(rank->stream, kCaptureThreadLocal));
    pithStubCapturesBody(rank->stream);
    const pithResult_t captured = allreduce(*rank, rank->send, rank->recv, rank->stream);
    CUgraph graph = nullptr;
    if (!workers) {
      CHECK(captured == pithUnhandledCudaError);
      CHECK(says("a stream memory operation in a graph"));
      CHECK(says("workers have to run the steps of calls, PITH_CUDA_STEPS"));
      CHECK(cu().capture_end(rank->stream, &graph) == kErrorCaptureInvalidated);
      continue;
    }
    REQUIRE(captured == pithSuccess);
    OK(cu().capture_end(rank->stream, &graph));
    bodies.push_back(std::make_unique<Graph>(graph));
    OK(cu().graph_destroy(graph));
  }
  for (unsigned iteration = 1; workers && iteration <= 20; ++iteration) {
    for (std::size_t r = 0; r < 2; ++r) {
      fill(world.ranks[r]->send, r, iteration);
      OK(cu().graph_launch(bodies[r]->exec, world.ranks[r]->stream));
    }
    world.finish(false);
    for (const auto& rank : world.ranks) REQUIRE(holds_sum(rank->recv, 2, iteration));
  }
}

// A copy that waits for its stream keeps its place in a queue, where one of ours would wait for it.
TEST_CASE("calls end though each stream has a copy behind them, and few queues for copies") {
  const test::Device device;
  const ByWorkers by_workers;
  const StubQueues few{.copy_queues = 2};
  pithStubQueues(&few);
  World world(2, GENERATE("allreduce:ring", "allreduce:two_shot"));
  const Words pinned(4 * count);  // a part for each copy; what is in it nobody looks at
  Words hold(1);
  for (unsigned round = 1; round <= 3; ++round) {
    for (std::size_t r = 0; r < 2; ++r) {
      const Rank& rank = *world.ranks[r];
      fill(rank.send, r, round);
      fill(rank.other_send, r, round + 1);
      if (r == 1) OK(cu().wait_value64(rank.stream, hold.at(0), round, kWaitValueGeq));
      REQUIRE(allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess);
      REQUIRE(allreduce(rank, rank.other_send, rank.other_recv, rank.other) == pithSuccess);
      const auto copy_back = [&](const DeviceMemory& from, CUstream stream, std::size_t part) {
        OK(cu().memcpy_async(pinned.at(part * count), device_address(from.as<void>()), count * 4,
                             stream));
      };
      copy_back(rank.recv, rank.stream, 2 * r);
      copy_back(rank.other_recv, rank.other, 2 * r + 1);
    }
    hold[0].store(round, std::memory_order_release);
    world.finish();
    for (const auto& rank : world.ranks) {
      REQUIRE(holds_sum(rank->recv, 2, round));
      REQUIRE(holds_sum(rank->other_recv, 2, round + 1));
    }
  }
}
