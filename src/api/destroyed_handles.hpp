// Handles whose communicators or compressors are gone. They are kept a while, empty, so that their
// use is an error and no crash.
#pragma once

#include "pith/pith.h"

namespace pith::api {

// Lets go of all that the handle has and takes it. Any thread. Precondition: it is marked as
// destroyed, and nothing runs on it.
void keep_destroyed(pithComm_t comm) noexcept;
void keep_destroyed(pithCompressor_t compressor) noexcept;

}  // namespace pith::api
