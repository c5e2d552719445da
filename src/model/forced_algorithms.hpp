// PITH_ALGO, read: "allreduce:ring,broadcast:chain" forces these algorithms, "ring" those of this
// name in all collectives that have one. What names a collective goes before what does not.
#pragma once

#include <array>
#include <string_view>

#include "collectives/algorithm.hpp"
#include "core/error.hpp"

namespace pith {

// By collective; null: the library chooses.
using ForcedAlgorithms = std::array<const Algorithm*, collective_count>;

// The error names what is unknown, or serves fewer ranks than these, and what is known.
Expected<ForcedAlgorithms> read_forced_algorithms(std::string_view text, int ranks);

}  // namespace pith
