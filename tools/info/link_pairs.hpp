// Which two ranks stand for each link of a job: one pair for the ranks of a host, one for each pair
// of hosts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace pith_info {

// Where a rank runs. Ranks of one place share memory; without shared memory each has its own.
struct Place {
  std::uint64_t memory = 0;
  std::uint64_t name = 0;          // of the host, as a job's file of links has it
  std::array<char, 64> host = {};  // a name for people
};

pith::Expected<Place> place_of(int rank);

struct RankPair {
  int first = 0;
  int second = 0;
};

struct LinkPairs {
  std::vector<RankPair> host;   // of the first place that has two ranks; else empty
  std::vector<RankPair> paths;  // of places a < b: number b * (b - 1) / 2 + a
};

// `most_paths`: those of further places are left out.
LinkPairs link_pairs(std::span<const Place> places, std::size_t most_paths);

}  // namespace pith_info
