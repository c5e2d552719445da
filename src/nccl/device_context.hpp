// Which CUDA device a thread works on, where the process uses CUDA at all.
#pragma once

#include <optional>

#include "cuda/device.hpp"

namespace pith::nccl {

struct Place {
  bool has_driver = false;  // in use by the process
  int device = 0;
  cuda::CUcontext context = nullptr;  // null: none
};

// Loads and initialises the driver; false where there is none, or no device.
bool start_driver();
// None where the process uses no driver.
std::optional<int> device_count();
// Its current context. Nothing is loaded or started for it.
Place place_of_this_thread();
// The primary context of a device; device 0 stands for host ranks where there is no driver.
Place place_of(int device);

}  // namespace pith::nccl
