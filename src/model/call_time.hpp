// How long a call took on one rank, and whose times say how long it takes.
#pragma once

#include <cstddef>

#include "collectives/algorithm.hpp"

namespace pith {

struct CallTime {
  const Algorithm* algorithm = nullptr;
  Variant variant = Variant::usual;
  std::size_t bytes = 0;  // as in Shape
  double seconds = 0;
  double gap_s = 0;       // since the end of the timed call before
  bool is_trial = false;  // by a rival of the choice
};

// Whether no rank can end the call before all have begun it. Only then one rank's time is about the
// call's; in a pair, what comes from the other one is the whole call.
constexpr bool tells_time(Collective collective, int ranks) {
  switch (collective) {
    case Collective::allreduce:
    case Collective::allgather:
    case Collective::reduce_scatter:
    case Collective::alltoall:
      return true;
    case Collective::broadcast:
      return ranks == 2;
    default:
      return false;
  }
}

}  // namespace pith
