// A call in virtual time, recorded.
#pragma once

#include <string>
#include <vector>

#include "collectives/algorithm.hpp"
#include "core/error.hpp"

namespace pith_trace {

struct Simulation {
  std::string algorithm = "allreduce:ring";  // as in PITH_ALGO
  int ranks = 4;
  std::size_t bytes = std::size_t{1} << 20;  // of the vector, or of one rank's block
  pith::LinkCost link = {1e-5, 1e-9, 1e-10};
  std::size_t chunk_bytes = 0;  // 0: the library's choice for links without shared memory
  int lanes = 4;
  int root = 0;
};

// The traces of all ranks, each as from Recorder::text(). The call's number is 1.
pith::Expected<std::vector<std::string>> simulate(const Simulation& simulation);

}  // namespace pith_trace
