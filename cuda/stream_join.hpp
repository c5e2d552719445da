// Streams that wait for each other: what is enqueued on any of them from then on begins when all
// that was enqueued on all of them has ended. Within a capture these are edges of its graph.
// One event does for all: who waits keeps the recording that it has met.
// Threads: one at a time.
#pragma once

#include <span>

#include "cuda/device.hpp"

namespace pith::cuda {

class StreamJoin {
 public:
  explicit StreamJoin(Device& device) : device_(device) {}
  ~StreamJoin();
  StreamJoin(const StreamJoin&) = delete;

  // Makes the event, unless that is done.
  Error prepare();
  // The streams belong to the device's context and are all different.
  Error join(std::span<const CUstream> streams);

 private:
  Error result_of(const char* what, CUresult result) const;
  Error record(CUstream stream) const;
  Error wait(CUstream stream) const;

  Device& device_;
  CUevent event_ = nullptr;
};

}  // namespace pith::cuda
