// Which pairs of ranks connect at start-up where others do when the first message wants it.
#pragma once

#include <bit>

namespace pith {

// Streams of a pair, where it has several; the same on all ranks.
struct PairStreams {
  int at_start = 1;
  int later = 1;           // of pairs that connect after the start-up
  bool on_demand = false;  // only neighbours connect at start-up
};

// Whether the distance of two ranks around the ring of all is a power of two: rings, trees, and
// exchanges that double their distance need no other pairs.
inline bool are_neighbours(int a, int b, int ranks) {
  const auto apart = static_cast<unsigned>(a < b ? b - a : a - b);
  return std::has_single_bit(apart) || std::has_single_bit(static_cast<unsigned>(ranks) - apart);
}

}  // namespace pith
