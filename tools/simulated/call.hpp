// A call of a dense collective in virtual time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "core/error.hpp"
#include "transport/sim/sim.hpp"

namespace pith_simulated {

struct Call {
  const pith::Algorithm* algorithm = nullptr;
  std::size_t bytes = 0;  // of the vector, or of one rank's block; a barrier has none
  pith::Tuning tuning;
  int root = 0;
  std::vector<int> hosts;  // by rank, any numbers; empty: each has a host of its own
};

// Elements are float32, and nobody looks at them: all ranks share the buffers.
//
// From the start of the call to the end of its last rank.
pith::Expected<double> seconds_of(const pith::SimConfig& config, const Call& call);

// The traces of all ranks, each as from Recorder::text(), as a communicator would have recorded
// them. The call's number is 1.
pith::Expected<std::vector<std::string>> traces_of(const pith::SimConfig& config, const Call& call);

}  // namespace pith_simulated
