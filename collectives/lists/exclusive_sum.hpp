// Values at the indices that a round of ExDyna or MiCRO has elected: taken out of every rank's
// accumulators, then summed.
#pragma once

#include "collectives/sparse/exclusive_election.hpp"

namespace pith {

// The sum that the spec asks for. 16-bit values take the one that rounds once and keeps the losses.
inline Reduction reduction_of(const Spec& spec) {
  return spec.values == DType::f32 ? spec.reduction : Reduction::direct;
}

// Takes this rank's values of a round out of the accumulators. To be called when all ranks'
// elections of the round have arrived and this rank has added its gradient there; one round at a
// time, since taken() grows at one end.
Task<Error> take_round(Call& call, ExclusiveElection& election, std::size_t round);
// Sums what was taken, in place; several rounds may run at once. Sets election.nonfinite if the
// gradient of some rank was not finite.
Task<Error> sum_round(Call& call, ExclusiveElection& election, std::size_t round);

}  // namespace pith
