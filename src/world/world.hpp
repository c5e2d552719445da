// N ranks in virtual time, each with what its communicator would give to a Call: for tests that run
// algorithms in the simulator, and for tools that look at them there.
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
  // A rank's call returns: its coroutine has ended, and where peers reach its memory and the call
  // has failed, so have those of all that live. May be empty.
  std::function<void(int rank)> on_end;

  // From the next calls on algorithms walk the ranks in this order. Before record().
  void set_order(RankOrder order);
  // From the next calls on ranks run on these hosts: by rank, any names. After set_order().
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

  // As the communicator of this rank would: its own operations end with `error` now, those of the
  // other ranks after revoke_delay_s.
  void revoke(int rank, const Error& error);

  // --- what run_ranks is made of ---
  void new_calls();
  void start(std::vector<Task<Error>> tasks);
  // Runs to the end. The results by rank: an unfinished one gives Code::internal with the deadlock
  // report, or Code::remote where the rank is dead. All coroutines are then brought to their end.
  std::vector<Error> finish();
  bool ended(int rank) const { return ranks_[static_cast<std::size_t>(rank)]->task.done(); }

  double elapsed_s() const { return sim_seconds(last_end_ - started_); }
  // When the rank's coroutine ended, from the start of the call.
  double ended_s(int rank) const {
    return sim_seconds(ranks_[static_cast<std::size_t>(rank)]->ended - started_);
  }
  // Makes another communicator of the same ranks for the next calls, while the old one stays as it
  // is. Precondition: no call runs.
  void renew();
  // Closes all communicators. What is then still held (frames, leases, scratch, buffers), a line
  // each; empty is good.
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
    // Its own: what an aborted rank gives back must not become memory of one that still reads it.
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
  bool unsettled_ = false;  // a rank waits with its return for the others
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
