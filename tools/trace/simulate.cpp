#include "simulate.hpp"

#include <fmt/format.h>

#include "tools/simulated/call.hpp"

namespace pith_trace {

namespace {

using namespace pith;

constexpr std::size_t wire_chunk = std::size_t{512} << 10;

Expected<const Algorithm*> find(const Simulation& simulation) {
  const Algorithm* found = nullptr;
  std::string known;
  for (const Algorithm& algorithm : algorithms()) {
    const std::string name = fmt::format("{}:{}", name_of(algorithm.collective), algorithm.name);
    known += (known.empty() ? "" : ", ") + name;
    if (name == simulation.algorithm) found = &algorithm;
  }
  if (!found) {
    return Error(Code::invalid_argument,
                 fmt::format("--sim is \"{}\", expected one of {}", simulation.algorithm, known));
  }
  if (simulation.ranks > found->ranks_max) {
    return Error(Code::invalid_argument,
                 fmt::format("--ranks is {}, expected at most {} with {}", simulation.ranks,
                             found->ranks_max, simulation.algorithm));
  }
  if (simulation.root < 0 || simulation.root >= simulation.ranks) {
    return Error(Code::invalid_argument, fmt::format("--root is {}, expected 0 to {}",
                                                     simulation.root, simulation.ranks - 1));
  }
  return found;
}

}  // namespace

Expected<std::vector<std::string>> simulate(const Simulation& simulation) {
  const Expected<const Algorithm*> algorithm = find(simulation);
  if (!algorithm) return algorithm.error();
  SimConfig config;
  config.ranks = simulation.ranks;
  config.link = {simulation.link.alpha, simulation.link.beta};
  config.gamma_s_per_byte = simulation.link.gamma;
  pith_simulated::Call call{*algorithm, simulation.bytes, {}, simulation.root, {}};
  call.tuning.chunk_bytes = simulation.chunk_bytes != 0 ? simulation.chunk_bytes : wire_chunk;
  call.tuning.lanes = simulation.lanes;
  return pith_simulated::traces_of(config, call);
}

}  // namespace pith_trace
