// How a device's queue reports that it has failed, so that results of its kernels are missing.
#pragma once

#include <limits>

#include "core/compute.hpp"

namespace pith {

// No kernel gets this fence. A failed queue reports it as reached.
inline constexpr Fence end_of_queue{std::numeric_limits<std::uint64_t>::max()};

// Precondition: `queue` is a device's.
inline bool has_failed(const Compute& queue) { return queue.reached(end_of_queue); }

}  // namespace pith
