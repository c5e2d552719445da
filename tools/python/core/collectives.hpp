// The methods of a communicator that move data.
#pragma once

#include "communicator.hpp"

namespace pith::python {

void add_collectives(CommunicatorType& type);

}  // namespace pith::python
