// The exact sum of sparse vectors by split and allgather [SparCML, Renggli et al. 2019:
// SSAR_Split_allgather], in two halves, so that a rank may drop some of its sums between them.
#pragma once

#include "collectives/lists/list_message.hpp"
#include "collectives/lists/sparse_sum.hpp"

namespace pith {

struct SplitSum {
  SplitSum(Call& call, const SparseSum& sum)
      : args(sum),
        shares(line_up(sum.vectors), call.size()),
        ranks(call.size()),
        own(static_cast<std::size_t>(call.rank())) {}

  ListParts parts(int rank) const { return {shares[rank], args.message_elements}; }
  // Of a vector with elements in this rank's share.
  PairList& sums(ListVector& vector) const { return vector.memory[own]; }

  // ListVector::memory has a list for every rank: first that rank's pairs of this rank's share,
  // later the sums of that rank's share. This rank's entry is the sum of its own share, since its
  // pairs stay in `list`. One more list, the last, is the sum of all shares.
  SparseSum args;
  Blocks shares;  // of the line of vectors, by rank
  int ranks;
  std::size_t own;
};

// Gives every rank all ranks' pairs of its share and adds them up in rank order, in float32: `list`
// of a vector with elements there is then these sums, one run.
Task<Error> add_shares(Call& call, SplitSum& split, Traffic& traffic);

// Gives all ranks the sums of all shares: what SplitSum::sums() then has, whose values are of this
// type. `list` of every vector is the result.
Task<Error> tell_sums(Call& call, SplitSum& split, DType type, Traffic& traffic);

}  // namespace pith
