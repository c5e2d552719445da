// Descriptors that the ranks of a communicator have for their connections. Ranks that are threads
// of one process share its limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace pith {

// What a rank tells of its process, once its own listeners are open.
struct DescriptorShare {
  std::uint64_t process = 0;  // the same for its threads only
  std::uint64_t left = 0;     // under the hard limit
  std::uint64_t to_come = 0;  // for control connections of this rank
  std::uint64_t limit = 0;    // the hard one

  // `most`: of those left that are of any interest.
  static DescriptorShare of_this_process(std::size_t most, std::size_t to_come);
  std::string pack() const;
  // What is missing in the text is zero.
  static DescriptorShare unpack(std::string_view text);
};

// What a rank is to open besides.
struct DescriptorNeed {
  DescriptorShare share;
  std::uint64_t peers = 0;  // by TCP
  std::uint64_t other = 0;  // for all else
};

// How many TCP connections, up to `most`, every pair of ranks can have: the same answer on all. An
// error names a rank of the process that has no room for one.
Expected<int> streams_with_room(std::span<const DescriptorNeed> ranks, int most);

}  // namespace pith
