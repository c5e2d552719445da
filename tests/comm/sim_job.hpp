// A job in virtual time: data paths and control planes of all ranks, communicators on them, and
// ranks that die. Splits and shrinks go by comm/children/, as those of Communicator do.
//
//   SimJob job(config, fanout);
//   std::string wrong = job.run([&](Call& frames, int rank) { return life(frames, rank); });
#pragma once

#include <coroutine>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/children/child_agreement.hpp"
#include "control/members.hpp"
#include "tests/control/control_world.hpp"
#include "world/world.hpp"

namespace pith::test {

// One rank's communicator, joined to the control plane as Communicator is.
class SimComm final : public CommWatcher {
 public:
  SimComm(World& world, ControlWorld& control, CommKey key, std::vector<int> members, int own);
  SimComm(const SimComm&) = delete;
  SimComm& operator=(const SimComm&) = delete;

  int size() const { return context.size; }
  // Here and at all others, as an abort does.
  void revoke(const Error& error);
  // Here alone.
  void quiesce(const Error& error);
  // Why no call may begin; that a member has died revokes it now.
  Error refuses_calls();
  // Whether a receive waits for this rank of the job.
  bool waits_for(int rank);

  // Calls count from 1, in the order in which all ranks begin them; splits are among them. `text`
  // is the same on all ranks. The number.
  std::uint32_t begin_call(const std::string& text);
  void end_call(std::uint32_t number) { running_.erase(number); }
  // How many have begun.
  std::uint32_t calls() const { return static_cast<std::uint32_t>(calls_.size()); }

  void on_revoked(const Error& error) override { revoke(error); }
  void on_dead(const Error& error) override {
    if (!death) death = error;
  }
  std::optional<CallNote> find_call(std::uint32_t number) override;
  Error refusal_of(std::uint32_t number) override { return number > calls() ? death : Error(); }
  std::optional<Stall> look(std::uint64_t now_ns) override;
  void on_stalled(const Stall&) override {}

  const CommKey key;
  const std::vector<int> members;
  const int own;  // rank of the job
  CommState state;
  Error death;  // the first of a member, as the control plane knows
  CallContext context;
  ChildRounds rounds;

 private:
  World& world_;
  ControlWorld& control_;
  std::vector<Route> routes_;
  std::vector<CallNote> calls_;      // call n is at n - 1
  std::set<std::uint32_t> running_;  // numbers
  std::uint32_t watched_ = 0;        // the oldest of them, since when it is looked at
  std::uint64_t watched_since_ns_ = 0;
};

class SimJob {
 public:
  // `fanout`: of the control plane's tree.
  SimJob(SimConfig config, int fanout);

  World& world() { return world_; }
  int size() const { return world_.size(); }
  bool alive(int rank) { return world_.sim().alive(rank); }
  void kill(int rank);
  // Of the ranks' communicators, the newest; null: none.
  SimComm* newest(int rank);

  SimComm& add(int rank, CommKey key, const std::vector<int>& members);
  void let_go(SimComm& comm);
  // What is wrong. The first one counts.
  void complain(std::string what);

  using Life = std::function<Task<Error>(Call& frames, int rank)>;
  // Every rank lives; ends some time after the last one. Empty, or what went wrong.
  std::string run(const Life& life);

  static Task<Error> pause(Call& frames, SimJob& job, double seconds);
  // One split or shrink of a rank at a time. The child is null where there is none.
  static Task<Error> split(Call& frames, SimJob& job, SimComm& comm, int color, int key,
                           SimComm*& child);
  struct Smaller {
    SimComm* comm = nullptr;
    std::uint64_t completed = 0;
  };
  // `cut_off`: ranks of the job to which this one has no link any more.
  static Task<Error> shrink(Call& frames, SimJob& job, SimComm& comm, std::vector<int> excluded,
                            std::vector<int> cut_off, std::uint64_t completed, Smaller& smaller);

 private:
  struct RankState {
    std::vector<std::unique_ptr<SimComm>> comms;
    std::coroutine_handle<> waiter;  // of an agreement
    GatherResult* result = nullptr;
    std::string asked;  // what the agreement is about
  };

  // One agreement; only its own rank's coroutine may await it.
  class Agreement {
   public:
    Agreement(SimJob& job, int rank, Question question)
        : job_(job), rank_(rank), question_(std::move(question)) {}
    bool await_ready() const { return false; }
    bool await_suspend(std::coroutine_handle<> waiter);
    GatherResult await_resume() { return std::move(result_); }

   private:
    SimJob& job_;
    const int rank_;
    const Question question_;
    GatherResult result_;
  };

  class Sleep {
   public:
    Sleep(SimWorld& sim, double seconds) : sim_(sim), seconds_(seconds) {}
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> sleeper) {
      sim_.after(seconds_, [sim = &sim_, sleeper] { sim->scheduler().make_ready(sleeper); });
    }
    void await_resume() const {}

   private:
    SimWorld& sim_;
    const double seconds_;
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  static Task<Error> make(Call& frames, SimJob& job, const SimComm& parent, CommKey key,
                          std::vector<int> members, SimComm*& made);
  ControlWorld::Host host();
  bool goes_on();
  void lose(int observer, int lost);
  void decided(int rank, const GatherResult& result);
  void check(int rank);
  void check_shrunk(const Shrink& shrink);
  void tidy_up();

  World world_;
  bool started_ = false;
  bool over_ = false;
  std::uint64_t quiet_at_ns_ = 0;
  ControlWorld control_;
  std::vector<RankState> ranks_;
  std::map<CommKey, std::vector<int>> members_;  // as the first rank saw them
  // What ranks have said they completed, by the communicator that comes of it.
  std::map<CommKey, std::map<int, std::uint64_t>> told_;
  std::string wrong_;
};

}  // namespace pith::test
