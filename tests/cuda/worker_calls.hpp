// Queues of workers and their calls, by hand; communicators whose steps workers run.
#pragma once

#include <algorithm>
#include <memory>

#include "core/kernel_args.hpp"
#include "cuda/stream_gate.hpp"
#include "tests/cuda/stream_world.hpp"
#include "tests/variable.hpp"

namespace pith::cuda::test {

// All blocks of the next test::Device are free: those of workers that a failed device never began
// are gone with it.
inline void renew_device() {
  const test::Device old;
  pithStubRenewContext();
}

// A queue with workers, and streams that get to entries.
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
  Fence add(const DeviceMemory& to, const DeviceMemory& what, std::size_t length) {
    return compute->run<pith::ReduceKernel>({to.as<std::byte>(), to.as<std::byte>(),
                                             what.as<std::byte>(), length, DType::u32, Op::sum,
                                             false});
  }
  Stream streams[3];
  std::unique_ptr<CudaCompute> compute;
  std::unique_ptr<StreamGate> gate;
};

// One that has begun, and whose stream waits for it.
struct GatedCall : StreamEntry {
  explicit GatedCall(Queue& q, std::size_t stream) : queue(q) {
    started = [](StreamEntry& self) { static_cast<GatedCall&>(self).has_started = true; };
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

inline void ones(const DeviceMemory& memory, std::size_t length) {
  std::fill_n(memory.as<std::uint32_t>(), length, 1u);
}

inline bool all_are(const DeviceMemory& memory, std::size_t length, std::uint32_t value) {
  const auto* const words = memory.as<std::uint32_t>();
  return std::all_of(words, words + length, [&](std::uint32_t word) { return word == value; });
}

// Communicators that are made meanwhile have workers.
struct ByWorkers {
  const pith::test::Variable steps{"PITH_CUDA_STEPS", "worker"};
  const pith::test::Variable blocks{"PITH_CUDA_BLOCKS", "2"};
};

}  // namespace pith::cuda::test
