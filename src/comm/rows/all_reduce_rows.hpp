// Sums sparse vectors of rows over the ranks of a communicator: each rank brings some rows, all get
// every row that one of them has. Made of other calls of the communicator, on host memory.
//
//   all ranks     tell each other how many rows they bring for each, and of what kind
//   every rank    sends rows to the ranks that own them (owner_of) > adds up those that it owns
//   all ranks     tell each other the number of their sums, and send them to all
//   every rank    puts the sums in order
//
// Cost: 4 alpha and (P-1)/P (n + u) beta, n rows of a rank and u of the result. Every row is added
// up by one rank, in rank order, so all ranks get the same bits.
#pragma once

#include <memory>

#include "comm/communicator.hpp"
#include "comm/rows/row_reduction.hpp"

namespace pith {

// Waits for the result. An index beyond the rows, or rows of different kinds, are errors on every
// rank; too little room is one on this rank, and the first rows are written. What fails here alone
// revokes the communicator, as the others wait for this rank.
Error all_reduce_rows(const std::shared_ptr<Communicator>& communicator, const RowsGiven& given,
                      const RowsWanted& wanted);

}  // namespace pith
