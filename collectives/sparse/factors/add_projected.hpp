// Adds a matrix's gradient and projects the sums on factors, in one pass.
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

// `part`: a matrix of the compressor's vector that has factors. Writes its rows times `right`, a
// row of `part.shape.rank` numbers each, to `left`; both are where the queue's kernels are. The
// kernels may still run when it returns.
Task<Error> add_projected(Call& call, const SparseCall& args, const VectorQueue& queue,
                          Compressor& compressor, LowRankPart part, const float* right,
                          float* left);

}  // namespace pith
