// The stream of a call on device memory, as libraries for Python name it.
#pragma once

#include <cstdint>

#include "nanobind/nanobind.h"

namespace pith::python {

// None: 0, which is the legacy default stream for device memory. Else the number itself, or what
// the object tells by __cuda_stream__, `cuda_stream` (PyTorch) or `ptr` (CuPy). Needs the GIL.
std::uintptr_t stream_of(nanobind::handle stream);

}  // namespace pith::python
