// All ranks of a ControlWorld: their list, what they know of deaths, and agreements of all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "control_world.hpp"

namespace pith::test {

inline std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

inline std::vector<int> all_ranks(const ControlWorld& world) {
  std::vector<int> all(at(world.ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// How many ranks that live do not know exactly these dead.
inline int ignorant(ControlWorld& world, const std::vector<int>& dead) {
  int count = 0;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (world.fate(rank) != ControlWorld::Fate::lives) continue;
    count += world.plane(rank).dead() != dead;
  }
  return count;
}

// All that live take part; counts those that got a result with as many blobs.
class Round {
 public:
  Round(ControlWorld& world, const GatherKey& key, ControlPlane::Need need) {
    for (int rank = 0; rank < world.ranks(); ++rank) {
      if (world.fate(rank) != ControlWorld::Fate::lives) continue;
      world.plane(rank).gather(key, need, all_ranks(world), "x",
                               [this](const GatherResult& result) {
                                 ++ended_;
                                 least_ = std::min(least_, result.blobs.size());
                               });
    }
  }
  int ended() const { return ended_; }
  std::size_t least() const { return least_; }

 private:
  int ended_ = 0;
  std::size_t least_ = ~std::size_t{0};
};

}  // namespace pith::test
