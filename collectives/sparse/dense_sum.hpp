// The sum of float32 values that all ranks hold for the same elements, by a dense allreduce:
// reduction=ring and tree of the schemes with common indices.
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

// In place. Uses lanes from `first_lane` on. 16-bit values are summed by value_sum.hpp.
Task<Error> sum_densely(Call& call, const SparseCall& args, Bytes values, std::uint16_t first_lane);

}  // namespace pith
