// The parts of a communicator that its calls on streams use. The communicator outlives the calls.
#pragma once

#include "comm/bound_compressors.hpp"
#include "comm/call_runner.hpp"
#include "comm/links.hpp"
#include "comm/revocation/revocation_state.hpp"

namespace pith {

struct StreamHost {
  CallRunner& runner;
  Links& links;
  RevocationState& revocation;
  BoundCompressors& compressors;
};

}  // namespace pith
