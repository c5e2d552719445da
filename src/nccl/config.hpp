// ncclConfig_t, of whatever version its caller knows, as Pith's own.
#pragma once

#include <optional>
#include <string>

#include "core/error.hpp"
#include "nccl/abi.h"
#include "pith/pith.h"

namespace pith::nccl {

// NULL gives none: pith's own default, or the parent's. `blocking`: what the environment says,
// which goes first.
Expected<std::optional<pithConfig_t>> read_config(const char* function, const ncclConfig_t* given,
                                                  std::optional<int> blocking);

}  // namespace pith::nccl
