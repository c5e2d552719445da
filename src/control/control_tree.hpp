// The tree of ranks and what is sent along it: to the root, from the root, to all.
//
// Those that live, in the order of their numbers, form a heap of `fanout`; the lowest one is the
// root. A parent that has stopped can be passed by: then its own parent is this rank's until it
// answers. The root cannot, for it may have decided already.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "control/control_context.hpp"
#include "control/control_wire.hpp"

namespace pith {

class ControlTree {
 public:
  // `local` hears what the root sends to the root.
  using Local = std::function<void(const std::string&)>;
  ControlTree(const ControlContext& context, ControlWire& wire, Local local)
      : context_(context), wire_(wire), local_(std::move(local)) {}

  bool is_root() const { return parent_ < 0; }
  int parent() const { return parent_; }
  std::uint64_t parent_since_ns() const { return parent_since_ns_; }
  bool is_neighbour(int rank) const {
    return children_.contains(rank) || (rank >= 0 && rank == parent_);
  }
  // Connections that this rank has once all have called.
  std::size_t neighbours() const { return expected_children().size() + (parent_ >= 0 ? 1 : 0); }

  // Computes the parent from who lives; whether it is another one.
  bool refresh();
  void add_child(int rank) { children_.insert(rank); }
  // That this rank leaves, if the others have been told.
  void tell_of_leaving(int child);
  void remove_child(int rank) { children_.erase(rank); }
  // A rank has said something; whether the tree is to be refreshed because of it.
  bool heard(int from);
  bool can_pass_by_parent() const;
  void pass_by_parent() { passed_by_.insert(parent_); }
  // This rank will leave in order, so that nobody takes its end for a death: it waits for those who
  // are about to call it, tells its neighbours, and hears from its parent that it has passed it on.
  // Whether it may go now. `ends`: its process does.
  bool try_to_leave(bool ends);
  // It goes whatever is missing; those neighbours that there are are told.
  void leave_now();
  void on_farewell(int from) { leave_answered_ |= from == parent_; }
  // A child that does not call may have died with its last parent, unseen.
  void probe_late_children();

  void send(int to, std::string text) { wire_.send(to, std::move(text)); }
  // To all neighbours but the one it came from.
  void spread(const std::string& text, int except);
  // To the root, which may be this rank.
  void send_up(const std::string& text);
  void send_down(const std::string& text);
  // What this rank says again and again: not to who does not answer.
  void ask(int neighbour, const std::string& text);
  void ask_children(const std::string& text);
  void answer(int from);

 private:
  std::vector<int> expected_children() const;
  bool is_complete() const;
  void tell_all_of_leaving();

  const ControlContext& context_;
  ControlWire& wire_;
  const Local local_;
  int parent_ = -1;
  std::uint64_t parent_since_ns_ = 0;
  std::set<int> children_;                            // that have said hello
  std::set<int> passed_by_;                           // that are parents again when they answer
  std::map<int, std::uint64_t> unanswered_since_ns_;  // what neighbours were asked
  std::map<int, std::uint64_t> awaited_since_ns_;     // children that have not called yet
  bool leaving_ = false;
  bool process_ends_ = false;
  bool leave_told_ = false;       // to the present neighbours
  bool leave_told_once_ = false;  // to whatever neighbours
  bool leave_answered_ = false;   // by the present parent
};

}  // namespace pith
