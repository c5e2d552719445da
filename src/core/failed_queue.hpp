// How a device's queue says that it has failed: what its kernels should have written is not there.
#pragma once

#include <limits>

#include "core/compute.hpp"

namespace pith {

// No queue gives this fence; one that has failed has passed it.
inline constexpr Fence end_of_queue{std::numeric_limits<std::uint64_t>::max()};

// Precondition: it is a device's.
inline bool has_failed(const Compute& queue) { return queue.reached(end_of_queue); }

}  // namespace pith
