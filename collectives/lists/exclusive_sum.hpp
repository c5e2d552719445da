// The values at what a round of ExDyna and its kin has elected: out of every rank's accumulators,
// and summed.
#pragma once

#include "collectives/sparse/exclusive_election.hpp"

namespace pith {

// Which sum the spec asks for. 16-bit values have one that rounds them once, and keeps the losses.
inline Reduction reduction_of(const Spec& spec) {
  return spec.values == DType::f32 ? spec.reduction : Reduction::direct;
}

// Once all ranks' elections of the round are here, and this rank's gradient of it: takes its values
// out of the accumulators. One round after another, for a list grows at one end.
Task<Error> take_round(Call& call, ExclusiveElection& election, std::size_t round);
// What was taken, in place; of several rounds at once. Learns whether somebody's gradient was not
// finite.
Task<Error> sum_round(Call& call, ExclusiveElection& election, std::size_t round);

}  // namespace pith
