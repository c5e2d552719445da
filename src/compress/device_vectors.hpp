// The compressors' view of a device whose memory holds accumulators, for operations between calls.
// During a call the call's own queue is used, see vector_queue.hpp.
#pragma once

#include <cstddef>

#include "core/compute.hpp"

namespace pith {

// Threads: any. Outlives every compressor.
class DeviceVectors {
 public:
  virtual ~DeviceVectors() = default;
  // Uninitialised memory; null if there is none left.
  virtual std::byte* take(std::size_t bytes) = 0;
  virtual void give(std::byte* memory, std::size_t bytes) = 0;
  // Kernels have completed when run() returns. Copies accept any host memory; all other arguments
  // are device or pinned memory. A driver error throws a Failure (core/failure.hpp).
  virtual Compute& compute() = 0;
  // Pinned host memory, which kernels can access.
  virtual Compute& pinned() = 0;
};

}  // namespace pith
