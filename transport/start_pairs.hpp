// Which pairs of ranks connect at start-up where others do when the first message wants it.
#pragma once

#include <bit>

namespace pith {

// Streams of a pair, where it has several; the same numbers on all ranks.
struct PairStreams {
  int at_start = 1;
  int later = 1;  // of pairs that connect after the start-up
};

// Up to `most` ranks all pairs do. Beyond, those whose distance around the ring of ranks is a power
// of two: rings, trees, and exchanges that double their distance need no others.
inline bool connects_at_start(int a, int b, int ranks, int most) {
  if (ranks <= most) return true;
  const auto apart = static_cast<unsigned>(a < b ? b - a : a - b);
  return std::has_single_bit(apart) || std::has_single_bit(static_cast<unsigned>(ranks) - apart);
}

}  // namespace pith
