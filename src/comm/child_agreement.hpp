// How communicators come from another one, by split or by shrink: what its ranks ask each other,
// and what follows from the answers. Nothing here waits or sends. Whoever makes the child does
// what step() says until it says `end`: Communicator on the control plane of the job, the tests on
// one in virtual time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/control_plane.hpp"

namespace pith {

// What is put to ControlPlane::gather().
struct Question {
  GatherKey key;
  ControlPlane::Need need = ControlPlane::Need::all;
  std::vector<int> participants;
  std::string blob;
  CallNote call = {};
};

// Of one communicator, so far. Shrinks count apart from splits, for the ranks that survive have not
// all begun the same splits.
struct ChildRounds {
  std::uint32_t splits = 0;
  std::uint32_t shrinks = 0;
  // By a shrink, of this one and of all later ones: ranks of the job; why, where this is one.
  std::vector<int> left_out;
  Error why;
};

enum class ChildStep {
  ask,   // question(), and hear() the result
  make,  // the communicator of this key() and these members(): then a split is over, and a shrink
         // wants to know whether it was made()
  end,   // error() is why there is no child
};

// The ranks of one color, ordered by key and then by rank.
class Split {
 public:
  static constexpr int no_color = -1;  // of ranks that are in no child

  // `members`: ranks of the job, by rank of the parent; `own` is this one. Both `members` and
  // `rounds` are the parent's and outlive the split.
  Split(CommKey parent, const std::vector<int>& members, int own, ChildRounds& rounds, int color,
        int key);

  ChildStep step() const { return step_; }
  Question question() const;
  void hear(const GatherResult& result);

  CommKey key() const;
  const std::vector<int>& members() const { return chosen_; }  // by rank of the child
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

// Those that live and are not excluded. They agree who that is, make the communicator, and agree
// whether it came to be everywhere. A death in between makes all try again without the dead.
//
// Of two that live and cannot reach each other one is left out: whoever has most such links, of
// several the last one, and so on until no such link is left. It is told why.
class Shrink {
 public:
  // As of Split. `excluded`: ranks of the parent. `next_call`: the number of the call that the
  // parent's ranks come to next, if it is not this one; 0: the parent is revoked, and others may
  // be in anything still.
  Shrink(CommKey parent, const std::vector<int>& members, int own, std::span<const int> excluded,
         ChildRounds& rounds, std::uint32_t next_call);

  ChildStep step() const { return step_; }
  // Once before each hear(). `completed`: the last call that this rank has completed by now;
  // `cut_off`: ranks of the job that it cannot reach.
  Question question(std::uint64_t completed, const std::vector<int>& cut_off = {});
  void hear(const GatherResult& result);
  void made(const Error& error);

  CommKey key() const { return key_; }
  const std::vector<int>& members() const { return survivors_; }
  // Of this attempt: others may have made it, or be about to.
  bool was_made() const { return stage_ == Stage::outcome; }
  // The child of the last made() is the one.
  bool built() const { return built_; }
  // The last call that all survivors have completed, as far as they have agreed on it.
  std::uint64_t completed() const { return completed_; }
  // Of two that cannot reach each other this is the one that is not a survivor, as was agreed now.
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
  CallNote call_;  // number 0: of a parent that is revoked
  ChildStep step_ = ChildStep::ask;
  Stage stage_ = Stage::survivors;
  std::size_t attempts_ = 0;
  CommKey key_ = 0;
  std::vector<int> survivors_;
  std::uint64_t own_completed_ = 0;  // as it was told
  std::uint64_t completed_ = 0;
  bool left_out_ = false;
  Error not_made_;  // why this rank has none
  bool built_ = false;
  Error error_;
};

// The members that are among `some`, at their places; -1 at the others.
std::vector<int> at_their_places(std::vector<int> members, const std::vector<int>& some);

}  // namespace pith
