// The speed of the simulator: all-reduce among many virtual ranks, on this thread.
//
//  sim_bench [RANKS]   a ring of RANKS (1,024) and recursive doubling of 4 * RANKS
#include <fmt/core.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "collectives/algorithm.hpp"
#include "kernels/host_compute.hpp"
#include "transport/sim/sim.hpp"
#include "transport/sim/sim_compute.hpp"

namespace {

using namespace pith;

struct Rank {
  Rank(SimWorld& world, Compute& kernels, int rank, int ranks, std::size_t count)
      : mailbox(world.scheduler(), ranks),
        transport(world, rank, mailbox),
        compute(world, rank, kernels),
        values(count, static_cast<std::uint64_t>(rank)) {
    comm.id = 1;
    routes.assign(static_cast<std::size_t>(ranks), Route{&transport, 0});
    for (int peer = 0; peer < ranks; ++peer) routes[static_cast<std::size_t>(peer)].peer = peer;
    context.scheduler = &world.scheduler();
    context.arena = &arena;
    context.mailbox = &mailbox;
    context.compute = context.host = &compute;
    context.comm = &comm;
    context.routes = routes;
    context.rank = rank;
    context.size = ranks;
    context.revoke = [](void* self, const Error& error) {
      static_cast<Rank*>(self)->comm.revoked = error;
    };
    context.revoke_context = this;
  }

  FrameArena arena;
  Mailbox mailbox;
  SimTransport transport;
  SimCompute compute;
  CommState comm;
  std::vector<Route> routes;
  CallContext context;
  std::unique_ptr<Call> call;
  Task<Error> task;
  std::vector<std::uint64_t> values;
};

CollectiveArgs args_of(Rank& rank) {
  CollectiveArgs args;
  args.count = rank.values.size();
  args.send = args.recv = {reinterpret_cast<std::byte*>(rank.values.data()), args.count * 8};
  args.type = DType::u64;
  return args;
}

bool is_right(const Rank& rank, std::uint64_t ranks) {
  for (const std::uint64_t value : rank.values) {
    if (value != ranks * (ranks - 1) / 2) return false;
  }
  return rank.task.done() && !rank.task.result();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Prints one line; false if a result is wrong.
bool run(const char* name, int ranks, std::size_t count) {
  const auto start = std::chrono::steady_clock::now();
  SimConfig config;
  config.ranks = ranks;
  SimWorld world(config);
  HostCompute kernels;
  std::vector<std::unique_ptr<Rank>> all;
  all.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    all.push_back(std::make_unique<Rank>(world, kernels, r, ranks, count));
  }
  const double setup_s = seconds_since(start);

  const auto begin = std::chrono::steady_clock::now();
  const Algorithm* algorithm = find_algorithm(Collective::allreduce, name);
  for (auto& rank : all) {
    rank->call = std::make_unique<Call>(rank->context, 1, 1);
    rank->task = algorithm->run(*rank->call, args_of(*rank));
    world.scheduler().make_ready(rank->task.handle());
  }
  world.run();
  const double run_s = seconds_since(begin);

  bool right = true;
  for (auto& rank : all) right = right && is_right(*rank, static_cast<std::uint64_t>(ranks));
  fmt::print("{:20} {:6} ranks {:8} bytes: {:7.3f} s, {:5.0f} ns a step, set up in {:.3f} s{}\n",
             name, ranks, count * 8, run_s, 1e9 * run_s / static_cast<double>(world.steps()),
             setup_s, right ? "" : "  WRONG RESULT");
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 1024;
  if (ranks < 2) {
    fmt::print(stderr, "sim_bench [RANKS], at least 2\n");
    return 2;
  }
  const bool ring = run("ring", ranks, static_cast<std::size_t>(ranks));
  const bool doubling = run("recursive_doubling", 4 * ranks, 16);
  return ring && doubling ? 0 : 1;
}
