// Links and cores of common hosts, assumed until links are measured: memory of some GB/s, a network
// of 10 Gbit/s. Every constant that a choice compares is here, once.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith::nominal {

// Seconds per message, per byte moved, per byte reduced.
inline constexpr LinkCost memory{1e-6, 0.2e-9, 0.2e-9};
inline constexpr LinkCost wire{20e-6, 0.8e-9, 0.2e-9};

// Of a compressed call: seconds for an element that is examined, for one that is written, and for a
// pair that a rank adds to its sum.
inline constexpr double select_element = 0.5e-9;
inline constexpr double write_element = 0.3e-9;
inline constexpr double add_pair = 8e-9;
// Bytes of a pair of index and value.
inline constexpr double pair_bytes = 6;

}  // namespace pith::nominal
