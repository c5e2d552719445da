// Momentum correction around an exchange (compress/momentum/velocity.hpp): before it velocities
// take the gradients and become what passes add; after it what was sent leaves them.
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

// Of all tensors. With a limit of the norm their gradients are first read once more: this rank's
// part of the limit is one in the square root of the number of ranks, since their gradients are
// taken to be independent.
Task<Error> correct_momentum(Call& call, const SparseCall& args);
// After success, of every element that was sent as a pair. Dense calls have none.
Task<Error> leave_velocities(Call& call, const SparseCall& args);

}  // namespace pith
