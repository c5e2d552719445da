// Handles whose communicators are gone. They are kept a while, empty, so that their use is an error
// and no crash.
#pragma once

#include "pith/pith.h"

namespace pith::api {

// Lets go of all that the handle has and takes it. Any thread. Precondition: nothing runs on it.
void keep_destroyed(pithComm_t comm) noexcept;

}  // namespace pith::api
