#include "regret/candidates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "settings/settings.hpp"

namespace pith_perf {
namespace {

using pith::Algorithm;
using pith::Collective;

constexpr std::array compared = {Collective::allreduce, Collective::reduce_scatter,
                                 Collective::allgather, Collective::broadcast};

std::vector<const Algorithm*> algorithms_for(Collective collective, int ranks) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : pith::algorithms()) {
    if (algorithm.collective == collective && ranks <= algorithm.ranks_max) {
      found.push_back(&algorithm);
    }
  }
  return found;
}

// Candidate i has the i-th algorithm of each collective.
std::vector<Candidate> forced_candidates(int ranks) {
  std::vector<Candidate> all;
  for (const Collective collective : compared) {
    const std::vector<const Algorithm*> found = algorithms_for(collective, ranks);
    all.resize(std::max(all.size(), found.size()));
    for (std::size_t i = 0; i < found.size(); ++i) {
      all[i].forced[static_cast<std::size_t>(collective)] = found[i];
      std::string& text = all[i].variables["PITH_ALGO"];
      text += fmt::format("{}{}:{}", text.empty() ? "" : ",", name_of(collective), found[i]->name);
    }
  }
  return all;
}

// Smaller vectors are neither cut into chunks nor over streams.
constexpr std::size_t least_bytes_cut = std::size_t{64} << 10;

Candidate candidate_of(const std::string& setting) {
  const std::size_t equals = setting.find('=');
  const std::string name = setting.substr(0, equals);
  const std::string value = equals == std::string::npos ? "" : setting.substr(equals + 1);
  Candidate candidate = {setting, {{"PITH_LEARN", "0"}}, least_bytes_cut, {}, false};
  if (name == "streams") {
    candidate.variables["PITH_STREAMS"] = value;
  } else if (name == "chunk") {
    candidate.variables["PITH_CHUNK"] = value;
  } else if (name == "copy_bytes") {
    candidate.variables["PITH_COPY_BYTES"] = value;
    candidate.least_bytes = std::strtoull(value.c_str(), nullptr, 10);
  } else if (setting == "learn=0") {
    candidate.least_bytes = 0;
  } else {
    throw std::runtime_error(fmt::format(
        "--settings has {}, expected a form of streams=2, chunk=131072, copy_bytes=65536, learn=0",
        setting));
  }
  return candidate;
}

}  // namespace

std::string_view Candidate::name_for(Collective collective) const {
  if (!name.empty()) return name;
  const Algorithm* one = algorithm(collective);
  return one == nullptr ? std::string_view() : one->name;
}

std::vector<Candidate> candidates_of(int ranks, const std::vector<std::string>& settings) {
  std::vector<Candidate> all = {{"default", {}, 0, {}, true}, {"default-again", {}, 0, {}, true}};
  for (Candidate& candidate : forced_candidates(ranks)) all.push_back(std::move(candidate));
  for (const std::string& setting : settings) all.push_back(candidate_of(setting));
  return all;
}

std::unique_ptr<Team> join(const Candidate& candidate, const Team& control) {
  pithUniqueId id = {};
  if (control.first_rank() == 0) must(pithGetUniqueId(&id), "pithGetUniqueId");
  must(pithBcast(&id, sizeof(id), pithUint8, 0, control.comm(0), nullptr), "pithBcast");
  for (const auto& [name, value] : candidate.variables) setenv(name.c_str(), value.c_str(), 1);
  auto team = std::make_unique<Team>(join(id, control.first_rank(), 1, control.ranks()),
                                     control.first_rank(), control.ranks());
  for (const auto& [name, value] : candidate.variables) unsetenv(name.c_str());
  return team;
}

void check_environment(const std::vector<Candidate>& candidates) {
  for (const Candidate& candidate : candidates) {
    for (const auto& [name, value] : candidate.variables) {
      if (!pith::in_environment(name)) continue;
      throw std::runtime_error(
          fmt::format("{} is set, but here each communicator has its own", name));
    }
  }
}

}  // namespace pith_perf
