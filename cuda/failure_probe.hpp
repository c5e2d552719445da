// Whether a device has failed, asked without waiting for the driver: a thread that frees memory may
// hold the driver's locks until streams go on that wait for whoever asks.
//
// Threads: whoever drives the engine.
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
  // Waits for a question that is under way, for the stream may be destroyed then. Precondition: no
  // stream waits for this thread any more.
  ~FailureProbe();

  // What was last heard; kSuccess: nothing bad. Has the helper thread ask again.
  CUresult look();
  // What was heard holds no more.
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
