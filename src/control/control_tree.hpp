// The tree of ranks, and how messages go along it: to the root, from the root, to all.
//
// Living ranks in ascending order form a heap of arity `fanout`; the lowest one is the root. A
// stopped parent can be passed by: its own parent takes its place until it answers. The root cannot
// be passed by, for it may have decided already.
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
  // `local` handles what the root sends to itself.
  using Local = std::function<void(const std::string&)>;
  ControlTree(const ControlContext& context, ControlWire& wire, Local local)
      : context_(context), wire_(wire), local_(std::move(local)) {}

  bool is_root() const { return parent_ < 0; }
  int parent() const { return parent_; }
  std::uint64_t parent_since_ns() const { return parent_since_ns_; }
  bool is_neighbour(int rank) const {
    return children_.contains(rank) || (rank >= 0 && rank == parent_);
  }
  // Connections of this rank once all children have connected.
  std::size_t neighbours() const { return expected_children().size() + (parent_ >= 0 ? 1 : 0); }

  // Recomputes the parent from the membership; returns whether it has changed.
  bool refresh();
  void add_child(int rank) { children_.insert(rank); }
  // Tells a child that this rank leaves, if the others have been told.
  void tell_of_leaving(int child);
  void remove_child(int rank) { children_.erase(rank); }
  // `from` has sent something; returns whether the tree must be refreshed.
  bool heard(int from);
  bool can_pass_by_parent() const;
  void pass_by_parent() { passed_by_.insert(parent_); }
  // This rank wants to leave in order, so that its end is not taken for a death: it waits for
  // children that are about to connect, tells its neighbours, and waits until its parent confirms.
  // Returns whether it may leave now. `ends`: its process ends.
  bool try_to_leave(bool ends);
  // Leaves at once; tells the neighbours that it has.
  void leave_now();
  void on_farewell(int from) { leave_answered_ |= from == parent_; }
  // An expected child that does not connect may have died unseen, together with its last parent.
  void probe_late_children();

  void send(int to, std::string text) { wire_.send(to, std::move(text)); }
  // To all neighbours but `except`, where it came from.
  void spread(const std::string& text, int except);
  // To the root, which may be this rank.
  void send_up(const std::string& text);
  void send_down(const std::string& text);
  // For messages that are sent repeatedly: a neighbour that does not answer gets no more of them.
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
  std::set<int> children_;                            // have said hello
  std::set<int> passed_by_;                           // stopped parents, skipped until they answer
  std::map<int, std::uint64_t> unanswered_since_ns_;  // since when a neighbour owes an answer
  std::map<int, std::uint64_t> awaited_since_ns_;     // expected children that have not connected
  bool leaving_ = false;
  bool process_ends_ = false;
  bool leave_told_ = false;       // the present neighbours know
  bool leave_told_once_ = false;  // some neighbours have been told
  bool leave_answered_ = false;   // the present parent has confirmed
};

}  // namespace pith
