// Memory that RDMA devices use is locked, which the system limits for each process.
#pragma once

#include <cstddef>
#include <string>

#include "core/error.hpp"

namespace pith {

// The error of registering memory, with the limit if that may be the cause. `what`: "register ...".
Error not_locked(const std::string& what, int error);
// Null: so much can be locked.
Error try_to_lock(std::size_t bytes);

}  // namespace pith
