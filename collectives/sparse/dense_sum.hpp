// The sum of float32 values that all ranks hold for the same elements, by a dense allreduce.
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

struct Algorithm;

// `send` and `recv` may be equal. Uses lanes from `first_lane` on.
Task<Error> sum_by(Call& call, const SparseCall& args, const Algorithm& algorithm, Bytes send,
                   Bytes recv, std::uint16_t first_lane);
// In place, as the spec's reduction says, ring or tree. 16-bit values are summed by value_sum.hpp.
Task<Error> sum_densely(Call& call, const SparseCall& args, Bytes values, std::uint16_t first_lane);

}  // namespace pith
