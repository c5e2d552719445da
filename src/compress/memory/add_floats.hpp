// Adds float32 at any address of the host to vectors, which may be on a device.
#pragma once

#include <cstddef>

#include "compress/device_vectors.hpp"

namespace pith {

struct AddedFloats {
  float* to;
  const std::byte* values;
  std::size_t count;
  bool fresh;  // `to` counts as zero
};
// Between calls. `device`: where `to` is; null: on the host. A device may refuse, with a Failure.
void add_floats(Compute& host, DeviceVectors* device, const AddedFloats& added);

// The same where the values are in memory that `vectors` reaches, and `reachable` has such memory.
void add_reachable(Compute& vectors, Compute& reachable, const AddedFloats& added);

}  // namespace pith
