// What the agreements of a shrink and a split mean: the same on all ranks that got the same result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/control_plane.hpp"
#include "comm/members.hpp"

namespace pith {

struct Survivors {
  std::vector<int> members;     // ranks of the job
  std::uint64_t completed = 0;  // the last call that all of them have completed
};

// Every blob is the last completed call of its rank; `own` is this rank's.
inline Survivors survivors_of(const GatherResult& result, const std::vector<int>& candidates,
                              std::uint64_t own) {
  Survivors survivors;
  survivors.completed = own;
  for (const int member : candidates) {
    const auto blob = result.blobs.find(member);
    if (blob == result.blobs.end() || contains(result.dead, member)) continue;
    survivors.members.push_back(member);
    survivors.completed =
        std::min(survivors.completed, Unpacker(blob->second).value<std::uint64_t>());
  }
  return survivors;
}

// Whether the communicator of these members came to be everywhere: a blob is empty where not.
enum class Outcome { built, failed, died };
inline Outcome outcome_of(const GatherResult& result, const std::vector<int>& members) {
  Outcome outcome = Outcome::built;
  for (const int member : members) {
    const auto blob = result.blobs.find(member);
    if (blob == result.blobs.end() || contains(result.dead, member)) return Outcome::died;
    if (blob->second.empty()) outcome = Outcome::failed;
  }
  return outcome;
}

// Those of a color, by key and then by rank. Every blob is a color and a key; a rank without one is
// left out.
inline std::vector<int> members_of_color(const GatherResult& result,
                                         const std::vector<int>& members, int color) {
  std::vector<std::pair<int, int>> ordered;  // key, rank of the communicator
  for (std::size_t r = 0; r < members.size(); ++r) {
    const auto found = result.blobs.find(members[r]);
    if (found == result.blobs.end()) continue;
    Unpacker blob(found->second);
    if (blob.value<int>() == color) ordered.emplace_back(blob.value<int>(), static_cast<int>(r));
  }
  std::sort(ordered.begin(), ordered.end());
  std::vector<int> chosen;
  for (const auto& [key, r] : ordered) chosen.push_back(members[static_cast<std::size_t>(r)]);
  return chosen;
}

// The ranks of `members` that are among `some`, at their places; -1 at the others.
inline std::vector<int> at_their_places(std::vector<int> members, const std::vector<int>& some) {
  for (int& member : members) {
    if (!contains(some, member)) member = -1;
  }
  return members;
}

}  // namespace pith
