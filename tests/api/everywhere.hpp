// A body of the C API's tests, run over every link.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "catch.hpp"
#include "memory_kind.hpp"
#include "ranks.hpp"

namespace ranks {

// Every link, with so many ranks.
inline void on_every_link(int size, const Body& body) {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(size, setup, body) == "");
  }
}

// Every link, with `least` to `most` ranks: each number of them on every second link, and with
// PITH_TEST_FULL=1 on all.
inline void on_links(int least, int most, const std::function<void(const Setup&, int)>& body) {
  int link = 0;
  for (const Setup& setup : every_link()) {
    ++link;
    for (int size = least; size <= std::min(most, most_ranks_everywhere()); ++size) {
      if ((size + link) % 2 == 0 || std::getenv("PITH_TEST_FULL")) body(setup, size);
    }
  }
}

inline void everywhere(int least, int most, const Body& body) {
  on_links(least, most, [&](const Setup& setup, int size) {
    INFO(name_of(setup) << ", " << size << " ranks");
    CHECK(run(size, setup, body) == "");
  });
}

// Of the calls of a test: number `first`, and every `step`th after it.
struct Share {
  int first = 0;
  int step = 1;
};

// With PITH_TEST_FULL=1: 6 to 17 ranks, each number of them on two links, which share the calls.
inline void on_many_ranks(const std::function<void(Rank&, Share)>& body) {
  if (!std::getenv("PITH_TEST_FULL")) {
    WARN("skipped: it takes long, PITH_TEST_FULL=1 runs it");
    return;
  }
  const std::vector<Setup> links = every_link();
  for (int size = 6; size <= 17; ++size) {
    for (const int half : {0, 1}) {
      const Setup& setup = links[static_cast<std::size_t>(size + half) % links.size()];
      INFO(name_of(setup) << ", " << size << " ranks");
      CHECK(run(size, setup, [&](Rank& self) { body(self, {half, 2}); }) == "");
    }
  }
}

}  // namespace ranks
