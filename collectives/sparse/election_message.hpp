// Messages of schemes in which every rank elects in a partition of its own (ExDyna and its kin):
// coded indices alone, for the values of all ranks at them are summed afterwards.
#pragma once

#include "collectives/sparse/exclusive_election.hpp"

namespace pith {

// Sends what this rank has elected in a round to all others; after the last round, under the
// quantile rule, with the levels of what it found.
Task<Error> send_elected(Call& call, ExclusiveElection& election, std::size_t round);
// The same from another rank, into its lists and the compressors' levels.
Task<Error> receive_elected(Call& call, ExclusiveElection& election, std::size_t round, int from);

// Where the threshold of a tensor is not known: adds the gradient in this rank's partition, and
// all ranks learn the quantile of all partitions together. One message to each rank, of pairs of
// bin and count, and none where every threshold is known.
Task<Error> measure_thresholds(Call& call, const SparseCall& args);

}  // namespace pith
