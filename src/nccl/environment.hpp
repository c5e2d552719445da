// What the environment says to libnccl.so.2: NCCL's own variables, as far as they mean something
// here, become defaults of Pith's settings, which go first where both are set. NCCL's files of
// settings count as the environment does, after it.
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

// Read at every call that makes an id or a communicator, never on loading. An error where a
// variable has no meaning in NCCL either.
Expected<Environment> read_environment();

// NCCL_DEBUG and what belongs to it alone, for a process whose first words come before any of that:
// the first time counts.
void read_debug_once();

// What is set and changes nothing here; the first communicator's log says so once.
std::vector<std::string> variables_without_effect();

}  // namespace pith::nccl
