// How often this process allocates memory, the libraries in it included.
#pragma once

#include <cstdint>
#include <optional>

namespace pith_perf {

// Allocations so far; nothing where they cannot be counted (sanitizers, other C libraries).
std::optional<std::uint64_t> allocations();

}  // namespace pith_perf
