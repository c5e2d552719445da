// Ranks agree on a call: on its density or form (density=auto), or whether it is dense
// (bypass=auto).
#pragma once

#include "collectives/compressed.hpp"
#include "collectives/sparse/call_times.hpp"

namespace pith {

// Samples the gradients, takes the least gains and the largest losses of all ranks, and makes all
// tensors adapt. A round of short messages in a call of its own lanes. After begin(), before
// anything is added.
Task<Error> agree_on_density(Call& call, const SparseCall& args, CallBefore before);

// With density=auto: vectors that had calls of their own take the first one's density
// and form, as an exchange has one.
void share_density(const SparseCall& args);

// With a fixed density: takes the longest time of the last timed call, and lets the chooser adapt
// the control of the first tensor, which stands for the call. Messages, and when, as above.
Task<Error> agree_on_bypass(Call& call, const SparseCall& args, CompressorStats::Timed last);

}  // namespace pith
