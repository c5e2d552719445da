// The algorithm by size and ranks, until links are measured.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

// See its definition.
const Algorithm& default_algorithm(const Shape& shape, Collective collective);

}  // namespace pith
