// Allreduce at elements that all ranks know without a message.
#pragma once

#include "collectives/lists/common_values.hpp"

namespace pith {

// Adds the gradient of tensor `tensor`, which is not empty, takes its values at the common elements
// and appends them.
using TakeCommon = Task<Error> (*)(Call& call, const SparseCall& args, std::size_t tensor,
                                   CommonValues& values);
// Takes the values of all tensors, of each as many as the spec's density elects, sums them in one
// message and writes the results.
Task<Error> sum_common_elements(Call& call, SparseCall args, TakeCommon take);
// The same of what all compressors have taken already, if that is of the same elements on all ranks
// and its indices ascend.
Task<Error> sum_taken(Call& call, SparseCall args);

}  // namespace pith
