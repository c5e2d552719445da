// Values at indices that all ranks know, out of the accumulator: with a device's queue in between
// where it lies on one.
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

// Adds the gradient in a range and counts what it finds. Awaits to Error.
Task<Error> add_gradient(Call& call, const SparseCall& args, Compressor& compressor,
                         std::size_t begin, std::size_t count);
// The indices are those behind the pairs of taken(), for which there is room; they become a run,
// with their values. `squares`: of these.
Task<Error> take_values(Call& call, const SparseCall& args, Compressor& compressor,
                        std::size_t count, double& squares);

}  // namespace pith
