// Asks whether a device has failed without blocking in the driver: a thread that frees memory may
// hold the driver's locks until streams proceed that wait for the asking thread.
//
// Threads: the one that drives the engine.
#pragma once

#include <atomic>
#include <memory>

#include "cuda/device.hpp"

namespace pith::cuda {

class FailureProbe {
 public:
  FailureProbe(Device& device, CUstream stream)
      : device_(device), stream_(stream), state_(std::make_shared<State>()) {}
  FailureProbe(const FailureProbe&) = delete;
  FailureProbe& operator=(const FailureProbe&) = delete;
  // Waits for a pending query, for the stream may be destroyed afterwards. Precondition: no stream
  // waits for this thread any more.
  ~FailureProbe();

  // The last known state; kSuccess: no failure known. Starts another query on the helper thread.
  CUresult look();
  // Discards the known state.
  void forget() { state_->heard.store(kSuccess, std::memory_order_relaxed); }

 private:
  struct State {
    std::atomic<bool> asking{false};
    std::atomic<CUresult> heard{kSuccess};
  };
  Device& device_;
  const CUstream stream_;
  const std::shared_ptr<State> state_;
};

}  // namespace pith::cuda
