// UCX's base library, libucs, loaded without its side effects: it catches signals and writes to
// standard output unless told not to.
#pragma once

#include "core/error.hpp"

namespace pith {

// UCX can patch munmap and the like to watch memory. It decides that while it is loaded, so what
// the first caller wants holds for the process, unless UCX_MEM_EVENTS says otherwise.
enum class UcsHooks { none, wanted };

// The handle for dlsym(), never unloaded; null: it cannot be loaded, and `why_not` says why.
// Thread-safe.
void* load_ucs(UcsHooks hooks, Error& why_not);

}  // namespace pith
