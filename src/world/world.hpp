// N ranks in virtual time, each with what a communicator would give to a Call. For tests and tools
// that run algorithms in the simulator.
//
//   World world(config);
//   std::vector<Error> errors = run_ranks(world, [&](Call& call, int rank) {
//     return some_algorithm(call, arguments_of(rank));
//   });
//   world.elapsed_s();  // from the start of this call to the end of its last rank
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/call.hpp"
#include "collectives/hosts.hpp"
#include "kernels/host_compute.hpp"
#include "model/model.hpp"
#include "transport/sim/sim.hpp"
#include "transport/sim/sim_compute.hpp"
#include "transport/trace.hpp"

namespace pith {

class World {
 public:
  explicit World(SimConfig config);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Settings; change them before a run.
  double revoke_delay_s = 1e-5;                   // until the other ranks hear of a revocation
  std::function<double(int rank)> start_s;        // when a rank makes the call; at once if empty
  std::function<std::uint64_t(int rank)> digest;  // of the rank's arguments; all equal if empty
  // Called when a rank's call returns: its coroutine has ended and, if the call failed while peers
  // could reach its memory, so have those of all living ranks. May be empty.
  std::function<void(int rank)> on_end;

  // Order in which algorithms use the ranks, from the next calls on. Must precede record().
  void set_order(RankOrder order);
  // The ranks' hosts, from the next calls on: by rank, any numbers. Must follow set_order().
  void set_hosts(const std::vector<int>& names);
  // From the next calls on every rank records its steps, the newest `most_steps` of them.
  void record(std::size_t most_steps = Recorder::default_steps);
  Recorder& recorder(int rank) { return at(rank).recording->recorder; }

  SimWorld& sim() { return sim_; }
  int size() const { return sim_.config().ranks; }
  Mailbox& mailbox(int rank) { return at(rank).mailbox; }
  SimTransport& transport(int rank) { return at(rank).transport; }
  SimCompute& compute(int rank) { return at(rank).compute; }
  FrameArena& arena(int rank) { return at(rank).arena; }
  CommState& comm(int rank) { return at(rank).comm; }
  Call& call(int rank) { return *at(rank).call; }

  // Revokes as the communicator of this rank would: its operations end with `error` now, those of
  // the other ranks after revoke_delay_s.
  void revoke(int rank, const Error& error);

  // --- the parts of run_ranks ---
  void new_calls();
  void start(std::vector<Task<Error>> tasks);
  // Runs to the end and returns results by rank: Code::internal with the deadlock report for an
  // unfinished rank, Code::remote for a dead one. All coroutines are then run to their end.
  std::vector<Error> finish();
  bool ended(int rank) const { return ranks_[static_cast<std::size_t>(rank)]->task.done(); }

  double elapsed_s() const { return sim_seconds(last_end_ - started_); }
  // Time from the start of the call to the end of the rank's coroutine.
  double ended_s(int rank) const {
    return sim_seconds(ranks_[static_cast<std::size_t>(rank)]->ended - started_);
  }
  // Makes a new communicator of the same ranks for the next calls; the old one keeps its state.
  // Precondition: no call runs.
  void renew();
  // Closes all communicators and lists what is still held (frames, leases, scratch, buffers), a
  // line each; empty is good.
  std::string leaks();

 private:
  struct Rank;
  struct Recording {
    Recording(Rank& rank, int ranks, std::size_t most_steps);

    Recorder recorder;
    TracedTransport transport;
    TracedCompute compute;
  };
  struct Rank {
    Rank(World& owner, int number, int ranks);
    FrameArena& frame_arena() { return arena; }

    World& world;
    int rank;
    FrameArena arena;
    Mailbox mailbox;
    SimTransport transport;
    // One a rank: memory that an aborted rank frees must not be reused by one that still reads it.
    HostCompute kernels;
    SimCompute compute;
    CommState comm;
    std::vector<Route> routes;
    CallContext context;
    std::optional<Recording> recording;
    std::optional<Call> call;
    Task<Error> task;
    bool begun = false;
    bool over = false;  // its coroutine has ended
    bool returned = false;
    SimTime ended = 0;
  };

  Rank& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  static Task<Error> watch(Rank& rank, Task<Error> task);
  void begin(Rank& rank);
  void come_back(Rank& rank);
  void settle();
  void tidy_up();

  SimWorld sim_;
  Model model_;
  RankOrder order_;
  Hosts hosts_;
  Trace trace_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::uint32_t calls_ = 0;
  bool announced_ = false;
  bool unsettled_ = false;  // a failed rank waits for the others before it returns
  SimTime started_ = 0;
  SimTime last_end_ = 0;
};

// Runs make_task(Call&, int rank) -> Task<Error> on every rank. It may be called again on one
// world; the calls are numbered.
template <class F>
std::vector<Error> run_ranks(World& world, F make_task) {
  world.new_calls();
  std::vector<Task<Error>> tasks;
  tasks.reserve(static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) {
    tasks.push_back(make_task(world.call(rank), rank));
  }
  world.start(std::move(tasks));
  return world.finish();
}

}  // namespace pith
