// Start-up from the environment: this process's rank, and the id that leads it to the other ranks.
#pragma once

#include "startup/launch.hpp"
#include "startup/unique_id.hpp"

namespace pith {

struct Start {
  int rank = -1;
  int size = 0;
  UniqueId id;
};

// Collective over the ranks that one launcher started; may be called repeatedly. Rank 0 opens the
// bootstrap root.
Expected<Start> start_from_environment(const Settings& settings);

}  // namespace pith
