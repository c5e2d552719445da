// The device of a communicator's calls on streams: the queues for kernels on its memory and on
// pinned memory, and access to the memory of other ranks' devices.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/algorithm.hpp"
#include "comm/links.hpp"
#include "cuda/cuda_compute.hpp"
#include "cuda/peer_access.hpp"
#include "streams/stream_options.hpp"

namespace pith {

class StreamDevice {
 public:
  // `links`: connected; must outlive this object.
  static Expected<std::unique_ptr<StreamDevice>> create(Links& links, const StreamOptions& options,
                                                        cuda::Device& device);
  StreamDevice(const StreamDevice&) = delete;
  StreamDevice& operator=(const StreamDevice&) = delete;

  cuda::Device& cuda() { return device_; }
  const cuda::Driver& driver() const { return device_.driver(); }
  cuda::CudaCompute& compute() { return *compute_; }
  cuda::PinnedCompute& pinned() { return pinned_; }
  // The context for calls on the device's memory.
  const CallContext& context() const { return context_; }

  // Slots of PeerAccess::look_at() for the memory that a call sends and receives; 0: none.
  using Looks = std::array<std::uint32_t, 2>;
  Looks look_at(const CollectiveArgs& args);
  void let_go(Looks& looks);
  // Calling thread, from time to time. Looks for allocations that the program has freed.
  void look_for_freed();

 private:
  StreamDevice(Links& links, bool cuda_ipc, cuda::Device& device,
               std::unique_ptr<cuda::CudaCompute> compute);

  cuda::Device& device_;
  cuda::PinnedCompute pinned_;                  // what `compute_` retires goes back here
  std::optional<cuda::PeerAccess> peers_;       // empty: not wanted, or no two ranks share memory
  std::unique_ptr<cuda::CudaCompute> compute_;  // ends first: its kernels use what `peers_` unmaps
  CallContext context_;
};

}  // namespace pith
