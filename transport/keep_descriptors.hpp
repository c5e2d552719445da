// Which ranks that share memory keep descriptors for each other.
#pragma once

#include "transport/start_pairs.hpp"

namespace pith {

// All do in a job of few ranks. In a larger one those do that most algorithms send to directly.
inline bool keep_descriptors(int a, int b, int ranks) {
  constexpr int few = 64;
  return ranks <= few || are_neighbours(a, b, ranks);
}

}  // namespace pith
