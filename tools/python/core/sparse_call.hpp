// The sum of compressed gradients as pairs of index and value.
#pragma once

#include "communicator.hpp"

namespace pith::python {

void add_sparse_call(CommunicatorType& type);

}  // namespace pith::python
