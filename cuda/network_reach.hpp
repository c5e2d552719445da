// How network hardware reaches a device's memory: GPUDirect RDMA, and dma-bufs of it.
#pragma once

#include <cstdint>

#include "core/compute.hpp"
#include "cuda/device.hpp"

namespace pith::cuda {

class NetworkReach final : public MemoryExporter {
 public:
  // Asks the driver; the device's context must be current.
  explicit NetworkReach(Device& device);

  // As Compute::network_memory().
  std::uint64_t memory() const { return memory_; }
  bool exports() const { return exports_; }
  // A descriptor of all of the allocation, by whole pages of the host.
  ExportedMemory export_memory(const std::byte* at) override;
  // Makes what the network has written so far visible to kernels that follow.
  CUresult see_writes() const;

 private:
  Device& device_;
  std::uint64_t memory_ = 0;
  bool must_flush_ = false;  // the device may see the network's writes out of order
  bool exports_ = false;
};

}  // namespace pith::cuda
