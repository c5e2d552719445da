// Messages of schemes in which every rank elects in a partition of its own (ExDyna and MiCRO):
// coded indices without values, since all ranks' values at them are summed afterwards.
#pragma once

#include "collectives/sparse/exclusive_election.hpp"

namespace pith {

// Sends this rank's indices of a round to all other ranks. With the quantile rule the last round's
// message also has the levels of the magnitudes found.
Task<Error> send_elected(Call& call, ExclusiveElection& election, std::size_t round);
// Receives the same from another rank, into its lists and the compressors' levels.
Task<Error> receive_elected(Call& call, ExclusiveElection& election, std::size_t round, int from);

// For tensors whose threshold is not known: adds the gradient in this rank's partition, and gives
// all ranks the quantile of all partitions together. Sends one message of pairs of bin and count to
// each rank, and none if every threshold is known.
Task<Error> measure_thresholds(Call& call, const SparseCall& args);

}  // namespace pith
