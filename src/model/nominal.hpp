// Links and cores of common hosts, for as long as nothing is measured: memory of some GB/s, a
// network of 10 Gbit/s. Every constant that a choice compares stands here, once.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith::nominal {

// Seconds per message, per byte moved, per byte reduced.
inline constexpr LinkCost memory{1e-6, 0.2e-9, 0.2e-9};
inline constexpr LinkCost wire{20e-6, 0.8e-9, 0.2e-9};

// Of a compressed call: seconds of an element that is looked at, of one that is written, of a pair
// that a rank adds up.
inline constexpr double select_element = 0.5e-9;
inline constexpr double write_element = 0.3e-9;
inline constexpr double add_pair = 8e-9;
// Of a pair, index and value.
inline constexpr double pair_bytes = 6;

}  // namespace pith::nominal
