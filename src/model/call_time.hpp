// How long a call took, and whose times say it.
#pragma once

#include <cstddef>
#include <cstdint>

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
      return nominal::is_distant(start) ? WhoseTime::nobodys : WhoseTime::slowest;
    default:
      return WhoseTime::nobodys;
  }
}

// Single short calls tell nothing where messages are fast: ranks that share cores, or are behind
// the others, find all messages there in one call and wait in the next, the longer the fewer rounds
// it has (TCP, 4 ranks, 8 bytes: one-shot takes 65 us call by call, recursive doubling 50; of calls
// between the other's, one-shot took 20 to 30). So some calls in a row are made alike and timed:
// the mean of all but the first and the longest is one time. A call counts alone if it takes
// long_call_s. Of broadcasts the mean is told: see told_run.hpp.
constexpr std::uint32_t calls_of_run = 8;
constexpr double long_call_s = 4e-3;
constexpr std::size_t long_bytes = std::size_t{64} << 10;
// Longer broadcasts, too, as their root may be some calls ahead: at 256 KiB, 4 and 8 ranks,
// loopback and 1 Gbit/s, single calls found the slower one of chain and binomial in 3 cases of 4,
// runs in 1.
constexpr std::size_t long_broadcast = std::size_t{512} << 10;

// Of a size class by its largest size.
constexpr bool in_runs(Collective collective, std::size_t bytes, const LinkCost& start) {
  const WhoseTime whose = whose_time(collective, start);
  const std::size_t longer = whose == WhoseTime::slowest ? long_broadcast : long_bytes;
  return bytes < longer && !nominal::is_distant(start) && whose != WhoseTime::nobodys;
}

}  // namespace pith
