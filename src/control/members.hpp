// The members of a communicator: ranks of the job, by rank of the communicator.
#pragma once

#include <algorithm>
#include <vector>

namespace pith {

// The rank in the communicator of a rank of the job; -1 where it is no member.
inline int place_of(const std::vector<int>& members, int rank) {
  const auto found = std::find(members.begin(), members.end(), rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

inline bool contains(const std::vector<int>& members, int rank) {
  return place_of(members, rank) >= 0;
}

}  // namespace pith
