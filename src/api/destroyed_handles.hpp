// The handles of destroyed communicators and compressors. They are kept for a while, empty, so that
// using one is an error and not a crash.
#pragma once

#include "pith/pith.h"

namespace pith::api {

// Takes ownership of the handle and releases all that it holds. Any thread. Precondition: it is
// marked as destroyed, and nothing runs on it.
void keep_destroyed(pithComm_t comm) noexcept;
void keep_destroyed(pithCompressor_t compressor) noexcept;

}  // namespace pith::api
