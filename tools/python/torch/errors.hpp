// Results of libpith as PyTorch's exceptions.
#pragma once

#include <c10/util/Exception.h>

#include "pith/pith.h"

namespace pith_torch {

// Throws with the message of this thread's last error: ValueError in Python for a bad argument,
// else torch.distributed.DistBackendError.
[[noreturn]] void throw_failure(pithResult_t result);

inline void check(pithResult_t result) {
  if (result != pithSuccess) [[unlikely]]
    throw_failure(result);
}

}  // namespace pith_torch
