// A barrier between streams: what is enqueued on any of them afterwards begins when everything
// enqueued on all of them before has ended. Within a capture it becomes edges of the graph.
// One event suffices: a wait refers to the event's most recent recording.
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

  // Creates the event if necessary.
  Error prepare();
  // Precondition: the streams are distinct and belong to the device's context.
  Error join(std::span<const CUstream> streams);

 private:
  Error result_of(const char* what, CUresult result) const;
  Error record(CUstream stream) const;
  Error wait(CUstream stream) const;

  Device& device_;
  CUevent event_ = nullptr;
};

}  // namespace pith::cuda
