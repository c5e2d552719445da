// The CUDA device that a thread works on, if the process uses CUDA.
#pragma once

#include <optional>

#include "cuda/device.hpp"

namespace pith::nccl {

struct Place {
  bool has_driver = false;  // the process uses a driver
  int device = 0;
  cuda::CUcontext context = nullptr;  // null: none
};

// Loads and initialises the driver; false if there is no driver or no device.
bool start_driver();
// Empty if the process uses no driver.
std::optional<int> device_count();
// The thread's current context. Loads and initialises nothing.
Place place_of_this_thread();
// The device's primary context. Without a driver device 0 stands for host ranks.
Place place_of(int device);

}  // namespace pith::nccl
