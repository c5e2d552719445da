// The filter of residuals around an exchange (compress/momentum/held_back.hpp).
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

// Before the passes, of all tensors.
Task<Error> hold_residuals_back(Call& call, const SparseCall& args);
// After success, of tensors that were not sent whole: where they are, Compressor::end() does it.
Task<Error> release_residuals(Call& call, const SparseCall& args);

}  // namespace pith
