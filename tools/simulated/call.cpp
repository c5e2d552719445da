#include "tools/simulated/call.hpp"

#include <algorithm>

#include "comm/call_step.hpp"
#include "world/world.hpp"

namespace pith_simulated {

using namespace pith;

namespace {

Task<Error> recorded_call(pith::Call& call, Recorder& recorder, const Algorithm& algorithm,
                          CollectiveArgs args) {
  const std::uint64_t id = begin_call(recorder, 1, args, algorithm.name);
  Error error = co_await algorithm.run(call, args);
  recorder.end(id, {});
  co_return error;
}

CollectiveArgs arguments_of(const Call& call) {
  CollectiveArgs args;
  args.collective = call.algorithm->collective;
  args.count = args.collective == Collective::barrier ? 0 : call.bytes / size_of(args.type);
  args.root = call.root;
  args.tuning = call.tuning;
  return args;
}

// `recorded`: the world's ranks record it, as call 1.
Error run(World& world, const Call& call, bool recorded) {
  if (!call.hosts.empty()) world.set_hosts(call.hosts);
  CollectiveArgs args = arguments_of(call);
  const std::size_t block = args.count * size_of(args.type);
  const Extent extent = extent_of(args.collective, world.size());
  std::vector<std::byte> send(block * extent.send);
  std::vector<std::byte> recv(block * extent.recv);
  args.send = {send.data(), send.size()};
  args.recv = {recv.data(), recv.size()};
  const auto start = [&](pith::Call& its, int rank) {
    return recorded ? recorded_call(its, world.recorder(rank), *call.algorithm, args)
                    : call.algorithm->run(its, args);
  };
  for (const Error& error : run_ranks(world, start)) {
    if (error) return error;
  }
  return {};
}

// Each rank's trace of at most `most_steps` steps; `whole`: none had more.
Expected<std::vector<std::string>> traces_of(const SimConfig& config, const Call& call,
                                             std::size_t most_steps, bool& whole) {
  World world(config);
  world.record(most_steps);
  if (Error error = run(world, call, true)) return error;
  std::vector<std::string> traces;
  whole = true;
  for (int rank = 0; rank < config.ranks; ++rank) {
    traces.push_back(world.recorder(rank).text());
    whole = whole && world.recorder(rank).dropped() == 0;
  }
  return traces;
}

}  // namespace

Expected<double> seconds_of(const SimConfig& config, const Call& call) {
  World world(config);
  if (Error error = run(world, call, false)) return error;
  return world.elapsed_s();
}

// Starts with few steps: recorders with full room would take gigabytes for a thousand ranks, which
// make few steps each.
Expected<std::vector<std::string>> traces_of(const SimConfig& config, const Call& call) {
  for (std::size_t most_steps = 256;; most_steps *= 8) {
    const std::size_t room = std::min(most_steps, Recorder::default_steps);
    bool whole = false;
    Expected<std::vector<std::string>> traces = traces_of(config, call, room, whole);
    if (!traces || whole || room == Recorder::default_steps) return traces;
  }
}

}  // namespace pith_simulated
