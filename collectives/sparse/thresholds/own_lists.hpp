// Allreduce of lists whose lengths only their ranks know: every rank elects by a rule of its own
// and sends its list to all others, in messages of its vectors one behind another; all add up all
// lists in rank order.
//
//   read all vectors, elect > indices to all > values to all > add up in rank order, write
//
// Cost: alpha + (P-1) k (w + v) beta, topk_direct_cost() in topk_cost.hpp with one message; no rank
// has to know the others' k.
#pragma once

#include "collectives/compressed.hpp"

namespace pith {

// Adds a tensor's gradient and moves what it elects to its taken(), in ascending order, as one run
// or several. `t`: which of args.tensors; it has elements.
using ElectOwn = Task<Error> (*)(Call& call, const SparseCall& args, std::size_t t);

Task<Error> sum_own_lists(Call& call, SparseCall args, ElectOwn elect);

}  // namespace pith
