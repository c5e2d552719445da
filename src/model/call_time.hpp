// How long a call took, and whose times say it.
#pragma once

#include <cstddef>

#include "collectives/algorithm.hpp"
#include "model/nominal.hpp"

namespace pith {

struct CallTime {
  const Algorithm* algorithm = nullptr;
  Variant variant = Variant::usual;
  std::size_t bytes = 0;  // as in Shape
  double seconds = 0;
  double gap_s = 0;       // since the end of the timed call before
  bool is_trial = false;  // by a rival of the choice
};

// Ranks that start with this link find the same. To tell takes as long as one message or two: much
// where links are far, and there messages alone decide which broadcast is fastest.
constexpr WhoseTime whose_time(Collective collective, const LinkCost& start) {
  switch (collective) {
    case Collective::allreduce:
    case Collective::allgather:
    case Collective::reduce_scatter:
    case Collective::alltoall:
      return WhoseTime::everyones;
    case Collective::broadcast:
      return start.alpha < nominal::distant_alpha ? WhoseTime::slowest : WhoseTime::nobodys;
    default:
      return WhoseTime::nobodys;
  }
}

}  // namespace pith
