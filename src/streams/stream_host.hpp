// What calls on streams have of their communicator, which outlives them.
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
