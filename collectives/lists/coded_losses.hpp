// What coding took from the values of this rank's lists, for the next call.
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

// Keeps, in the accumulators, what this rank has taken minus what its messages say. Precondition:
// the values of lists are coded, and this rank has read its own messages (read_lists).
void keep_list_losses(Call& call, const SparseCall& args);

}  // namespace pith
