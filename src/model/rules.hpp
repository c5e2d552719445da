// The default algorithm by size and ranks.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

// The rules and their reasons are at the definition.
const Algorithm& default_algorithm(const Shape& shape, Collective collective);

}  // namespace pith
