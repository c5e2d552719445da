// A body of the C API's tests, run over every link.
#pragma once

#include "catch.hpp"
#include "ranks.hpp"

namespace ranks {

// Every link, with `least` to `most` ranks.
inline void everywhere(int least, int most, const Body& body) {
  for (const Setup& setup : every_link()) {
    for (int size = least; size <= most; ++size) {
      INFO(name_of(setup) << ", " << size << " ranks");
      CHECK(run(size, setup, body) == "");
    }
  }
}

}  // namespace ranks
