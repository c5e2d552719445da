// Memory that RDMA devices use is locked, which the system limits for each process.
#pragma once

#include <cstddef>
#include <string>

#include "core/error.hpp"

namespace pith {

// Without this much no RDMA device is of use.
inline constexpr std::size_t locked_bytes_least = std::size_t{1} << 20;

// The error of registering memory, with the limit if that may be the cause. `what`: "register ...".
Error not_locked(const std::string& what, int error);
// Null: locked_bytes_least can be locked.
Error try_to_lock();

}  // namespace pith
