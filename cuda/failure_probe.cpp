#include "cuda/failure_probe.hpp"

#include "cuda/helper_thread.hpp"

namespace pith::cuda {

FailureProbe::~FailureProbe() { state_->asking.wait(true, std::memory_order_acquire); }

CUresult FailureProbe::look() {
  if (!state_->asking.exchange(true, std::memory_order_acq_rel)) {
    run_on_helper_thread([state = state_, &device = device_, stream = stream_] {
      state->heard.store(device.failure(stream), std::memory_order_relaxed);
      state->asking.store(false, std::memory_order_release);
      state->asking.notify_all();
    });
  }
  return state_->heard.load(std::memory_order_relaxed);
}

}  // namespace pith::cuda
