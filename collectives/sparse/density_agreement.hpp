// density=auto: ranks agree on the density of a call.
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

// What this rank knows of the call before.
struct CallBefore {
  double ago_s = 0;  // since it ended; 0: there was none
  double took_s = 0;
};

// Samples the gradients, takes the least gains of all ranks, and makes all tensors adapt. A round
// of short messages in a call of its own lanes. After begin(), before anything is added.
Task<Error> agree_on_density(Call& call, const SparseCall& args, CallBefore before);

}  // namespace pith
