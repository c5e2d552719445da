#include "nccl/device_context.hpp"

namespace pith::nccl {

namespace {

// A driver that is loaded but not initialised does not count.
const cuda::Driver* driver_in_use() {
  cuda::look_for_driver();
  const cuda::Driver* const driver = cuda::known_driver();
  int devices = 0;
  const bool used = driver && driver->device_count(&devices) == cuda::kSuccess && devices > 0;
  return used ? driver : nullptr;
}

}  // namespace

bool start_driver() { return cuda::driver() && driver_in_use(); }

std::optional<int> device_count() {
  const cuda::Driver* const driver = driver_in_use();
  int devices = 0;
  if (!driver || driver->device_count(&devices) != cuda::kSuccess) return std::nullopt;
  return devices;
}

Place place_of_this_thread() {
  Place place;
  const cuda::Driver* const driver = driver_in_use();
  if (!driver) return place;
  place.has_driver = true;
  if (driver->ctx_get_current(&place.context) != cuda::kSuccess) place.context = nullptr;
  if (place.context && driver->ctx_get_device(&place.device) != cuda::kSuccess) place.device = 0;
  return place;
}

Place place_of(int device) {
  Place place;
  const cuda::Driver* const driver = driver_in_use();
  if (!driver) return place;
  place.has_driver = true;
  int known = 0;
  if (driver->device_get(&known, device) != cuda::kSuccess) return place;
  place.device = device;
  const Expected<cuda::CUcontext> context = cuda::primary_context(*driver, known);
  if (context) place.context = *context;
  return place;
}

}  // namespace pith::nccl
