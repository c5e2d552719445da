// Sums whose inputs are multiplied by a factor first, by whatever algorithm sums.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

// Scales the inputs, each rounded to the type once, and hands them to the algorithm. Where recv
// cannot hold them they go through scratch, in pieces of eight chunks.
Task<Error> run_premultiplied(Call& call, CollectiveArgs args, const Algorithm& algorithm);

}  // namespace pith
