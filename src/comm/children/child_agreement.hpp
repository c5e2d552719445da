// The protocol by which a communicator is made from another one, by split or by shrink: what its
// ranks ask each other, and what follows from the answers. Nothing here waits or sends. The caller
// does what step() says until it says `end`. ChildCommunicators runs it on the job's control plane,
// the tests on one in virtual time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/control_plane.hpp"

namespace pith {

// The arguments of ControlPlane::gather().
struct Question {
  GatherKey key;
  ControlPlane::Need need = ControlPlane::Need::all;
  std::vector<int> participants;
  std::string blob;
  CallNote call = {};
};

// The rounds that one communicator has begun. They are counted by kind, because the ranks that
// survive to a shrink have not all begun the same splits.
struct ChildRounds {
  std::uint32_t splits = 0;
  std::uint32_t grows = 0;
  std::uint32_t shrinks = 0;
  // Ranks of the job that a shrink left out, of this shrink and all later ones. `why` is set if
  // this rank is one of them.
  std::vector<int> left_out;
  Error why;
};

enum class ChildStep {
  ask,   // ask question(), pass the result to hear()
  make,  // make the communicator of key() and members(): this ends a split, while a shrink is
         // told by made() whether it worked
  end,   // error() is why there is no child
};

// The ranks of one color, ordered by key and then by rank.
class Split {
 public:
  static constexpr int no_color = -1;  // for ranks that join no child

  // `members`: ranks of the job, indexed by rank in the parent; `own`: this one's rank in the job.
  // The parent owns `members` and `rounds`, which outlive the split.
  Split(CommKey parent, const std::vector<int>& members, int own, ChildRounds& rounds, int color,
        int key);

  ChildStep step() const { return step_; }
  Question question() const;
  void hear(const GatherResult& result);

  CommKey key() const;
  const std::vector<int>& members() const { return chosen_; }  // indexed by rank in the child
  const Error& error() const { return error_; }

 private:
  const CommKey parent_;
  const std::vector<int>& members_;
  const int own_;
  const std::uint32_t round_;
  const int color_;
  const int order_;
  ChildStep step_ = ChildStep::ask;
  std::vector<int> chosen_;
  Error error_;
};

// The ranks that live and are not excluded. They agree on their set, make the communicator, and
// agree on whether it was made everywhere. If a rank dies meanwhile, they try again without it.
//
// Of two live ranks that cannot reach each other one is left out: the one with the most such links,
// or the last of several, until no such link is left. It is told why.
class Shrink {
 public:
  // Arguments as for Split. `excluded`: ranks of the parent. `next_call`: the number of the next
  // call of the parent's ranks, if it is not this shrink; 0: the parent is revoked, and other ranks
  // may still be in any call.
  Shrink(CommKey parent, const std::vector<int>& members, int own, std::span<const int> excluded,
         ChildRounds& rounds, std::uint32_t next_call);

  ChildStep step() const { return step_; }
  // Called once before each hear(). `completed`: the last call that this rank has completed so far;
  // `cut_off`: ranks of the job that this rank cannot reach.
  Question question(std::uint64_t completed, const std::vector<int>& cut_off = {});
  void hear(const GatherResult& result);
  void made(const Error& error);

  CommKey key() const { return key_; }
  const std::vector<int>& members() const { return survivors_; }
  // Whether this attempt reached made(): other ranks may have made the child or be about to.
  bool was_made() const { return stage_ == Stage::outcome; }
  // Whether the child of the last made() is the result on all ranks.
  bool built() const { return built_; }
  // The last call that all survivors have completed, once they have agreed on it.
  std::uint64_t completed() const { return completed_; }
  // Whether the ranks agreed in this shrink to leave this rank out, because of a dead link.
  bool left_out() const { return left_out_; }
  const Error& error() const { return error_; }

 private:
  enum class Stage { survivors, outcome };

  using Link = std::pair<int, int>;  // between ranks of the job

  void note_call(std::uint32_t next_call);
  void hear_survivors(const GatherResult& result);
  void leave_out(const std::vector<Link>& dead);
  void hear_outcome(const GatherResult& result);
  std::vector<int> excusable(const GatherResult& result) const;
  Error decided_without_us(const GatherResult& result) const;
  Error shrunk_without(int member) const;
  Error shrunk_to_others(int member) const;
  void end(const Error& error);

  const CommKey parent_;
  const std::vector<int>& members_;
  const int own_;
  std::vector<int> candidates_;  // ranks of the job
  ChildRounds& rounds_;
  CallNote call_;  // number 0: the parent is revoked
  ChildStep step_ = ChildStep::ask;
  Stage stage_ = Stage::survivors;
  std::size_t attempts_ = 0;
  CommKey key_ = 0;
  std::vector<int> survivors_;
  std::uint64_t own_completed_ = 0;  // as told to the others
  std::uint64_t completed_ = 0;
  bool left_out_ = false;
  Error not_made_;  // why this rank could not make the child
  bool built_ = false;
  Error error_;
};

// The members, with -1 in place of those that are not in `some`.
std::vector<int> at_their_places(std::vector<int> members, const std::vector<int>& some);

}  // namespace pith
