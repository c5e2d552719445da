#include "simulate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/call_step.hpp"
#include "world/world.hpp"

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

CollectiveArgs arguments_of(const Simulation& simulation, const Algorithm& algorithm) {
  CollectiveArgs args;
  args.collective = algorithm.collective;
  args.count =
      algorithm.collective == Collective::barrier ? 0 : simulation.bytes / size_of(DType::f32);
  args.root = simulation.root;
  args.tuning.chunk_bytes = simulation.chunk_bytes != 0 ? simulation.chunk_bytes : wire_chunk;
  args.tuning.lanes = simulation.lanes;
  return args;
}

struct Memory {
  std::vector<std::byte> send;
  std::vector<std::byte> recv;
};

// The call as a communicator would record it around its algorithm.
Task<Error> recorded(Call& call, Recorder& recorder, const Algorithm& algorithm,
                     CollectiveArgs args) {
  const std::uint64_t id = begin_call(recorder, 1, args, algorithm.name);
  Error error = co_await algorithm.run(call, args);
  recorder.end(id, {});
  co_return error;
}

// Each rank's trace of at most `most_steps` steps; `whole`: none had more.
Expected<std::vector<std::string>> traces_of(const Simulation& simulation,
                                             const Algorithm& algorithm, std::size_t most_steps,
                                             bool& whole) {
  SimConfig config;
  config.ranks = simulation.ranks;
  config.link = {simulation.link.alpha, simulation.link.beta};
  config.gamma_s_per_byte = simulation.link.gamma;
  World world(config);
  world.record(most_steps);

  const CollectiveArgs shape = arguments_of(simulation, algorithm);
  const std::size_t block = shape.count * size_of(shape.type);
  const Extent extent = extent_of(shape.collective, simulation.ranks);
  std::vector<Memory> memory(static_cast<std::size_t>(simulation.ranks));
  const auto start = [&](Call& call, int rank) {
    Memory& mine = memory[static_cast<std::size_t>(rank)];
    mine.send.resize(block * extent.send);
    mine.recv.resize(block * extent.recv);
    CollectiveArgs args = shape;
    args.send = {mine.send.data(), mine.send.size()};
    args.recv = {mine.recv.data(), mine.recv.size()};
    return recorded(call, world.recorder(rank), algorithm, args);
  };
  for (const Error& error : run_ranks(world, start)) {
    if (error) return error;
  }
  std::vector<std::string> traces;
  whole = true;
  for (int rank = 0; rank < simulation.ranks; ++rank) {
    traces.push_back(world.recorder(rank).text());
    whole = whole && world.recorder(rank).dropped() == 0;
  }
  return traces;
}

}  // namespace

// Starts with few steps: recorders with full room would take gigabytes for a thousand ranks, which
// make few steps each.
Expected<std::vector<std::string>> simulate(const Simulation& simulation) {
  const Expected<const Algorithm*> algorithm = find(simulation);
  if (!algorithm) return algorithm.error();
  for (std::size_t most_steps = 256;; most_steps *= 8) {
    const std::size_t room = std::min(most_steps, Recorder::default_steps);
    bool whole = false;
    Expected<std::vector<std::string>> traces = traces_of(simulation, **algorithm, room, whole);
    if (!traces || whole || room == Recorder::default_steps) return traces;
  }
}

}  // namespace pith_trace
