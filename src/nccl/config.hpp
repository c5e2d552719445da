// Converts an ncclConfig_t of any version to Pith's config.
#pragma once

#include <optional>
#include <string>

#include "core/error.hpp"
#include "nccl/abi.h"
#include "pith/pith.h"

namespace pith::nccl {

// Empty for NULL: Pith's default, or the parent's config. `blocking`: the environment's value,
// which takes precedence.
Expected<std::optional<pithConfig_t>> read_config(const char* function, const ncclConfig_t* given,
                                                  std::optional<int> blocking);

}  // namespace pith::nccl
