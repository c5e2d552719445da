// What every dense algorithm must do is in the tests with the tag [conformance], which are linked
// into test_collectives and into tests of algorithms from outside. What they ask of algorithms:
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "collectives/algorithm.hpp"
#include "collectives/patterns.hpp"

namespace pith::test {

// Those that the tests go through. Each executable defines it.
std::span<const Algorithm> tested_algorithms();

// Those that work on each other's memory where they reach it.
inline constexpr std::array<std::pair<Collective, std::string_view>, 6> over_views{
    {{Collective::allreduce, "one_shot"},
     {Collective::allreduce, "two_shot"},
     {Collective::reduce_scatter, "views"},
     {Collective::allgather, "views"},
     {Collective::broadcast, "views"},
     {Collective::alltoall, "views"}}};

// Whether the cost is what virtual time shows where every block is one chunk. Where the two trees
// of a double tree meet on a port, and where ranks fold into a power of two, it is an estimate.
inline bool has_exact_cost(const Algorithm& algorithm, int ranks) {
  if (algorithm.name == "double_tree") return false;
  const bool folds = algorithm.name.starts_with("recursive") || algorithm.name == "rabenseifner" ||
                     algorithm.name == "hierarchical";
  return !folds || floor_power_of_two(ranks) == ranks;
}

}  // namespace pith::test
