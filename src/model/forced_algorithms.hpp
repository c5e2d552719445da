// Parses PITH_ALGO: "allreduce:ring,broadcast:chain" forces these algorithms, "ring" those of that
// name in all collectives that have one. Items with a collective take precedence.
#pragma once

#include <array>
#include <string_view>

#include "collectives/algorithm.hpp"
#include "core/error.hpp"

namespace pith {

// By collective; null: the library chooses.
using ForcedAlgorithms = std::array<const Algorithm*, collective_count>;

// The error says that a name is unknown, with the known ones, or serves fewer than `ranks` ranks.
Expected<ForcedAlgorithms> read_forced_algorithms(std::string_view text, int ranks);

}  // namespace pith
