// Checks a compressed call before it begins, because on a stream a later error reaches no caller.
#pragma once

#include <span>

#include "collectives/call.hpp"
#include "collectives/compressed.hpp"

namespace pith {

// An error if the call would send lists that are too long. Changes nothing. The same on all ranks.
// Precondition: there are tensors.
Error check_compressed_call(const CallContext& context, std::span<const CompressedTensor> tensors);

}  // namespace pith
