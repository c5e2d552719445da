// The election of ExDyna and MiCRO: every rank elects, in a few rounds, in partitions that it alone
// owns in this step.
#pragma once

#include <algorithm>
#include <array>

#include "collectives/compressed.hpp"
#include "collectives/patterns.hpp"

namespace pith {

// Partitions belong to the caller's ranks, not to places in the order (rank_order.hpp).
inline std::size_t own_partition(const Call& call, const Compressor& compressor) {
  return ExdynaControl::owned(compressor.step, static_cast<std::size_t>(call.callers_rank()),
                              ranks_of(call));
}
inline std::size_t owner_of(const Call& call, const Compressor& compressor, std::size_t partition) {
  const std::size_t n = ranks_of(call);
  const std::size_t rank = (partition + n - static_cast<std::size_t>(compressor.step % n)) % n;
  return static_cast<std::size_t>(call.place_of(static_cast<int>(rank)));
}

// What the strands of one call share.
struct ExclusiveElection {
  static constexpr std::size_t most_rounds = 16;
  // The values of one round: this rank's, later their sums. There is a run for every partition of
  // every tensor that has elements, in the order of the round's lists, and then a flag
  // (exclusive_sum.cpp).
  struct Sums {
    Scratch values;
    Scratch losses;         // float32: what rounding 16-bit sums lost on this rank
    std::size_t count = 0;  // flag included
    Fence ready;            // reached when this rank's values are copied
  };

  SparseCall args;
  std::size_t rounds = 1;  // parts into which each partition is cut
  bool nonfinite = false;  // the gradient of some rank was not finite
  std::array<Sums, most_rounds> sums;

  // The elements that a rank has elected in a round: one run, without values.
  PairList& list(Compressor& compressor, std::size_t round, std::size_t rank,
                 std::size_t ranks) const {
    return compressor.received(rounds * ranks)[round * ranks + rank];
  }
  // The part of a partition that belongs to a round.
  Range range(const Compressor& compressor, std::size_t partition, std::size_t round) const {
    const ExdynaPartition& cut = compressor.exdyna.partition();
    const Range part =
        block(cut.size(partition), static_cast<int>(rounds), static_cast<int>(round));
    return {cut.begin(partition) + part.begin, part.size};
  }
};

// Several rounds if there is something to overlap, of `all` elements in some tensors; fewer where
// messages are as fast as memory.
inline std::size_t exclusive_rounds(std::size_t all, std::size_t tensors, std::size_t ranks,
                                    std::size_t chunk_bytes, bool views) {
  // Elements that make a round worth while: of one partition, and of one tensor in it.
  const std::size_t worth = std::min(4 * chunk_bytes, std::size_t{1} << 18);
  const std::size_t worth_a_kernel = std::max<std::size_t>(worth / 16, 1);
  if (tensors == 0) return 1;
  const std::size_t of_one = all / ranks;
  const std::size_t most = views ? 4 : ExclusiveElection::most_rounds;
  const std::size_t fair =
      std::min(of_one / std::max<std::size_t>(worth, 1), of_one / tensors / worth_a_kernel);
  return std::clamp<std::size_t>(fair, 1, most);
}

// Calls each(range, list, offset of its values) for all partitions of a tensor. `offset` is that of
// the first; returns the offset behind the last.
template <class Each>
std::size_t for_each_partition(Call& call, const ExclusiveElection& election, std::size_t round,
                               const CompressedTensor& tensor, std::size_t offset, Each each) {
  for (std::size_t p = 0; p < ranks_of(call); ++p) {
    const std::size_t owner = owner_of(call, *tensor.compressor, p);
    const SparseList list = election.list(*tensor.compressor, round, owner, ranks_of(call)).run(0);
    each(election.range(*tensor.compressor, p, round), list, offset);
    offset += list.count;
  }
  return offset;
}

// Adds the gradient in this rank's part of a round and elects from it, into the round's own list.
// The elements stay in the accumulator until all ranks' elections are known.
Task<Error> elect(Call& call, const ExclusiveElection& election, Compressor& compressor,
                  std::size_t round);

}  // namespace pith
