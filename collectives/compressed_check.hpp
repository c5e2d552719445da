// What a compressed call is refused for before it begins: on a stream nobody hears of it later.
#pragma once

#include <span>

#include "collectives/call.hpp"
#include "collectives/compressed.hpp"

namespace pith {

// An error where the call would send lists that are too long. Changes nothing. The same on all
// ranks. Precondition: there are tensors.
Error check_compressed_call(const CallContext& context, std::span<const CompressedTensor> tensors);

}  // namespace pith
