// What could serve a call: the library by its own choice, each algorithm forced, and the library
// with another setting, or without what it learns. Settings are read when a communicator is
// created, so each has one of its own.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"
#include "frame/team.hpp"

namespace pith_perf {

// One communicator's part in the comparison.
struct Candidate {
  // "default", "default-again", "streams=1"; empty if it has an algorithm of each collective.
  std::string name;
  std::map<std::string, std::string> variables;
  // Where its setting can matter: vectors from this size on.
  std::size_t least_bytes = 0;
  std::array<const pith::Algorithm*, pith::collective_count> forced = {};
  bool learns = false;  // so it makes calls before it is timed

  // Empty: the collective has fewer algorithms than there are candidates.
  std::string_view name_for(pith::Collective collective) const;
  const pith::Algorithm* algorithm(pith::Collective collective) const {
    return forced[static_cast<std::size_t>(collective)];
  }
};

// The first is the library's choice and the second is the same again. `settings`: "streams=1",
// "copy_bytes=65536", "chunk=131072", "learn=0". Throws std::runtime_error if one is none of these.
std::vector<Candidate> candidates_of(int ranks, const std::vector<std::string>& settings);

// Creates the candidate's communicator with its variables in the environment, which has none of
// them before and after. All ranks call it in the same order.
std::unique_ptr<Team> join(const Candidate& candidate, const Team& control);

// Throws std::runtime_error if the environment has a variable that a candidate sets.
void check_environment(const std::vector<Candidate>& candidates);

}  // namespace pith_perf
