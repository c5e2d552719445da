// Counts this process's memory allocations, including those of its libraries.
#pragma once

#include <cstdint>
#include <optional>

namespace pith_perf {

// Allocations so far; empty if they cannot be counted (sanitizers, other C libraries).
std::optional<std::uint64_t> allocations();

}  // namespace pith_perf
