// How long a call took on one rank.
#pragma once

#include <cstddef>

#include "collectives/algorithm.hpp"

namespace pith {

struct CallTime {
  const Algorithm* algorithm = nullptr;
  Variant variant = Variant::usual;
  std::size_t bytes = 0;  // as in Shape
  double seconds = 0;
  // It followed another call at once, so all ranks began it at about the same time. Else the time
  // may be that of waiting for a rank that computes.
  bool prompt = false;
};

}  // namespace pith
