// File descriptors that the ranks of a communicator can still open for connections. Ranks that are
// threads of one process share its limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "transport/start_pairs.hpp"

namespace pith {

// What a rank reports of its process after opening its own listeners.
struct DescriptorShare {
  std::uint64_t process = 0;  // random; equal only for threads of one process
  std::uint64_t left = 0;     // descriptors still free under the hard limit
  std::uint64_t to_come = 0;  // that this rank's control connections will still take
  std::uint64_t limit = 0;    // the hard limit

  // Counts free descriptors up to `most` only.
  static DescriptorShare of_this_process(std::size_t most, std::size_t to_come);
  std::string pack() const;
  // Missing fields are zero.
  static DescriptorShare unpack(std::string_view text);
};

// How many descriptors a rank is going to open.
struct DescriptorNeed {
  DescriptorShare share;
  std::uint64_t peers = 0;        // for each stream (TCP) to neighbours
  std::uint64_t other = 0;        // all others
  std::uint64_t later_peers = 0;  // for each stream to other peers
};

// How many TCP connections, at most `most`, each pair of ranks can have; the same on all ranks.
// Pairs that are no neighbours connect on demand where not even one for every pair fits, or
// `on_demand` asks for it; where none fits, those of the start-up leave half of the room to others.
// The error names the lowest rank of a process that has no room for one to each neighbour.
Expected<PairStreams> streams_with_room(std::span<const DescriptorNeed> ranks, int most,
                                        bool on_demand);

}  // namespace pith
