// The keys of top-k.
#pragma once

#include <cstddef>

#include "compress/scheme.hpp"

namespace pith {

// How lists of pairs are exchanged.
enum class Exchange : std::uint8_t { automatic, direct, ring, recursive_doubling, split };

inline Exchange exchange_of(const Spec& spec) { return static_cast<Exchange>(spec.choices[0]); }

// Whether lists of `pairs` go from neighbour to neighbour. exchange=auto: if they are on a network
// and the lists that arrive at one port of a switch together do not fit into a buffer that any
// switch has. `views`: all ranks reach each other's memory.
inline bool goes_round_ring(const Spec& spec, int ranks, std::size_t pairs, bool views) {
  constexpr std::size_t port_bytes = std::size_t{1} << 16;
  if (ranks <= 2 || exchange_of(spec) == Exchange::direct) return false;
  const std::optional<Coding> coding = list_coding_of(spec);
  const bool chooses =
      exchange_of(spec) == Exchange::automatic || (coding && exchange_of(spec) != Exchange::ring);
  if (!chooses) return true;
  const std::size_t value_bytes =
      coding ? coding->bytes(pairs) : pairs * static_cast<std::size_t>(size_of(spec.values));
  return !views && static_cast<std::size_t>(ranks - 1) * (pairs + value_bytes) > port_bytes;
}

}  // namespace pith
