// What a gossip scheme remembers of the parameters that ranks have told each other.
#pragma once

#include <vector>

namespace pith {

// Both empty before the first call, which stands for zeros. Two vectors, whatever the number of
// neighbours: of their memories only the weighted sum is ever needed.
struct GossipMemories {
  std::vector<float> own;         // what this rank's neighbours know of its parameters
  std::vector<float> neighbours;  // weighted sum of what it knows of theirs

  void scale(float factor) {
    for (float& value : own) value *= factor;
    for (float& value : neighbours) value *= factor;
  }
};

}  // namespace pith
