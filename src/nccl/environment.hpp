// The environment of libnccl.so.2. NCCL's variables, as far as they apply here, become defaults of
// Pith's settings, which take precedence if both are set. NCCL's configuration files count after
// the environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace pith::nccl {

struct Environment {
  std::string comm_id;          // NCCL_COMM_ID: host:port of rank 0
  std::optional<int> blocking;  // NCCL_COMM_BLOCKING
};

// Read by every call that makes an id or a communicator, never at load time. An error if a value is
// invalid in NCCL, too.
Expected<Environment> read_environment();

// Reads NCCL_DEBUG and related variables, for a process whose first message comes before any other
// variable is read. Only the first call has an effect.
void read_debug_once();

// Variables that are set but have no effect; logged once, by the first communicator.
std::vector<std::string> variables_without_effect();

}  // namespace pith::nccl
