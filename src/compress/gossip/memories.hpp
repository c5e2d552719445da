// What a gossip scheme remembers of the parameters that ranks have told each other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compress/gossip/stated_graph.hpp"

namespace pith {

// Both vectors are empty before the first call, which stands for zeros. Two, whatever the number of
// neighbours: of their memories only the weighted sum is ever needed.
struct GossipMemories {
  std::vector<float> own;         // what this rank's neighbours know of its parameters
  std::vector<float> neighbours;  // weighted sum of what it knows of theirs
  std::uint64_t edges = 0;  // digest of the stated graph that they belong to; 0: of no stated one
  std::shared_ptr<const StatedGraph> graph;  // as the user states it, and not saved; may be null

  // What ranks know of each other; the user's graph stays.
  void forget() {
    own.clear();
    neighbours.clear();
  }
  void scale(float factor) {
    for (float& value : own) value *= factor;
    for (float& value : neighbours) value *= factor;
  }
};

}  // namespace pith
