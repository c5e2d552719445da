// A device whose memory holds accumulators, as far as compressors know of it: what is done to them
// between calls. In a call its own queue does the work, see vector_queue.hpp.
#pragma once

#include <cstddef>

#include "core/compute.hpp"

namespace pith {

// Threads: any. It outlives every compressor.
class DeviceVectors {
 public:
  virtual ~DeviceVectors() = default;
  // Not zero. Null where there is none left.
  virtual std::byte* take(std::size_t bytes) = 0;
  virtual void give(std::byte* memory, std::size_t bytes) = 0;
  // Kernels have ended when run() returns. They copy from and to any host memory; whatever else
  // they are given is the device's, or pinned. What the driver refuses, or has not done to the end,
  // is a Failure (core/failure.hpp).
  virtual Compute& compute() = 0;
  // Host memory that they reach.
  virtual Compute& pinned() = 0;
};

}  // namespace pith
