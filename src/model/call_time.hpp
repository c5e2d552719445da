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

// Single calls tell nothing where messages are fast: ranks that share cores, or are behind the
// others, find all messages there in one call and wait in the next, the longer the fewer rounds it
// has (TCP, 4 ranks, 8 bytes: one-shot takes 65 us call by call, recursive doubling 50; of calls
// between the other's, one-shot took 20 to 30). So some calls in a row are made alike and timed,
// and the first of them is not counted. Of broadcasts the mean is told: see told_run.hpp.
struct CallRun {
  std::uint32_t calls = 1;  // a power of two; 1: each call is made by itself, and counts alone
  std::uint32_t times = 1;  // that a run of a rival tells

  constexpr bool is_one_time() const { return calls > 1 && times == 1; }
};
// Of short calls the mean without the longest is one time; a call counts alone if it takes
// long_call_s.
constexpr CallRun short_calls{8, 1};
// Each counts alone.
constexpr CallRun long_calls{4, 3};
constexpr double long_call_s = 4e-3;
constexpr std::size_t long_bytes = std::size_t{64} << 10;
// Longer broadcasts, too, as their root may be some calls ahead: at 256 KiB, 4 and 8 ranks,
// loopback and 1 Gbit/s, single calls found the slower one of chain and binomial in 3 cases of 4,
// runs in 1.
constexpr std::size_t long_broadcast = std::size_t{512} << 10;

// Of a size class by its largest size.
constexpr CallRun run_of(Collective collective, std::size_t bytes, const LinkCost& start) {
  const WhoseTime whose = whose_time(collective, start);
  if (whose == WhoseTime::nobodys || nominal::is_distant(start)) return {};
  if (whose == WhoseTime::slowest) return bytes < long_broadcast ? short_calls : CallRun();
  return bytes < long_bytes ? short_calls : long_calls;
}

}  // namespace pith
