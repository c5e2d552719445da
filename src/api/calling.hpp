// A handle while one of its calls runs, for another thread that ends the handle: pithCommAbort may
// come at any time.
#pragma once

#include "api/comm_handle.hpp"
#include "core/process_fence.hpp"

namespace pith::api {

// Of the thread that makes the call. Checks that the handle is not destroyed come after it.
class Calling {
 public:
  explicit Calling(pithComm_t comm) : comm_(comm) {
    if (!comm_) return;
    comm_->in_call.store(true, std::memory_order_relaxed);
    fenced_from_elsewhere();
  }
  ~Calling() {
    if (comm_) comm_->in_call.store(false, std::memory_order_release);
  }
  Calling(const Calling&) = delete;
  Calling& operator=(const Calling&) = delete;

 private:
  const pithComm_t comm_;
};

}  // namespace pith::api
