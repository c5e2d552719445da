// The low-pass filter of residuals [ScaleCom, Chen et al., NeurIPS 2020, algorithm 1]: of what a
// call changes in a residual m, namely the gradient that it adds and the pairs that it sends, only
// the part beta stays, m' = m + beta (gradient - sent). Large steps make gradients of one rank
// noisy; the filter leaves in its residual what many calls agree on, so that ranks' residuals, and
// with them the elements that a leader elects for all, stay alike.
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

// After success. Accumulators hold residual + gradient - sent, and the rest of both is taken back
// out of them; velocities, which are the call's gradients, are spent for that. A dense call, which
// sends the residual and the gradient, is not filtered.
Task<Error> filter_residuals(Call& call, const SparseCall& args);

}  // namespace pith
