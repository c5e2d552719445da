// Ranks over the local transport whose calls run on device memory, driven by one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/call.hpp"
#include "core/engine.hpp"
#include "cuda/cuda_compute.hpp"
#include "kernels/host_compute.hpp"
#include "model/model.hpp"
#include "pith/pith.h"
#include "tests/cuda_stub/fixture.hpp"
#include "transport/local/local.hpp"

namespace pith::cuda::test {

// Device memory for the length of a scope; on the stub the host may look into it.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) { OK(cu().mem_alloc(&address_, bytes)); }
  ~DeviceMemory() { cu().mem_free(address_); }
  DeviceMemory(const DeviceMemory&) = delete;
  template <class T>
  T* as() const {
    return host_view<T>(address_);
  }
  Bytes bytes() const { return {as<std::byte>(), bytes_, MemoryKind::cuda}; }

 private:
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

// What this thread's last call said.
inline bool says(const char* word) {
  const std::string message = pithGetLastError(nullptr);
  UNSCOPED_INFO(message);
  return message.find(word) != std::string::npos;
}

struct DeviceRank {
  DeviceRank(pith::cuda::Device& device, const std::shared_ptr<LocalHub>& hub, int rank, int ranks)
      : engine(ranks),
        transport(engine.scheduler(), engine.mailbox(), rank, hub),
        pinned(device, host),
        routes(static_cast<std::size_t>(ranks)),
        model(ranks) {
    Expected<std::unique_ptr<CudaCompute>> made = CudaCompute::create(device);
    INFO(made.error().message());
    REQUIRE(made);
    compute = std::move(*made);
    REQUIRE_FALSE(compute->scratch().reserve(std::size_t{16} << 20));
    REQUIRE_FALSE(pinned.scratch().reserve(std::size_t{16} << 20));
    engine.add(transport);
    engine.add(*compute);
    for (int r = 0; r < ranks; ++r) {
      if (r != rank) routes[static_cast<std::size_t>(r)] = {&transport, r};
    }
    context.scheduler = &engine.scheduler();
    context.arena = &engine.arena();
    context.mailbox = &engine.mailbox();
    context.compute = compute.get();
    context.host = &pinned;
    context.comm = &state;
    context.chooser = &model;
    context.routes = routes;
    context.rank = rank;
    context.size = ranks;
    context.revoke_context = this;
    context.revoke = [](void* raw, const Error& error) {
      auto& self = *static_cast<DeviceRank*>(raw);
      self.state.revoked = error;
      self.engine.mailbox().quiesce(self.state, error);
      self.transport.quiesce(self.state, error);
    };
  }
  std::uint64_t late_blocks() {
    return compute->scratch().late_blocks() + pinned.scratch().late_blocks();
  }

  Engine engine;
  LocalTransport transport;
  HostCompute host;
  PinnedCompute pinned;
  std::unique_ptr<CudaCompute> compute;
  CommState state;
  std::vector<Route> routes;
  Model model;
  CallContext context;
};

class DeviceWorld {
 public:
  using Program = std::function<Task<Error>(Call& call)>;

  explicit DeviceWorld(int ranks) {
    Stream stream;
    Expected<pith::cuda::Device*> found = pith::cuda::Device::of_stream(stream);
    REQUIRE(found);
    const Expected<std::shared_ptr<LocalHub>> hub = LocalHub::create(ranks);
    REQUIRE(hub);
    for (int r = 0; r < ranks; ++r) {
      ranks_.push_back(std::make_unique<DeviceRank>(**found, *hub, r, ranks));
    }
  }

  // One call on every rank, to its end and that of its kernels.
  void run(const Program& program) {
    ++calls_;
    std::vector<std::unique_ptr<Call>> calls;
    std::vector<Task<Error>> tasks;
    for (const auto& rank : ranks_) {
      calls.push_back(std::make_unique<Call>(rank->context, calls_, 7));
      tasks.push_back(program(*calls.back()));
    }
    for (Task<Error>& task : tasks) task.handle().resume();
    drive([&] {
      for (const Task<Error>& task : tasks) {
        if (!task.done()) return false;
      }
      return true;
    });
    for (Task<Error>& task : tasks) {
      const Error error = task.take();
      INFO(error.message());
      REQUIRE_FALSE(error);
    }
    for (const auto& rank : ranks_) {
      const Fence last = rank->compute->run<CopyKernel>({nullptr, nullptr, 0});
      drive([&] { return rank->compute->reached(last); });
    }
  }
  void drive(const std::function<bool()>& done) {
    while (!done()) {
      bool moved = false;
      for (const auto& rank : ranks_) moved |= rank->engine.progress();
      if (!moved) std::this_thread::yield();
    }
  }
  DeviceRank& operator[](std::size_t rank) { return *ranks_[rank]; }
  std::size_t size() const { return ranks_.size(); }

 private:
  std::vector<std::unique_ptr<DeviceRank>> ranks_;
  std::uint32_t calls_ = 0;
};

}  // namespace pith::cuda::test
