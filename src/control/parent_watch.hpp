// Whether this rank's parent has stopped, and what to do then: nobody knows how long it sleeps.
//
// The root tells when a call or an agreement has taken too long. If it has stopped itself, or a
// rank on the way to it, each rank must do so for itself. A parent that is in the way of those who
// do not wait for it is passed by, and one that was left out of a shrink is given up.
#pragma once

#include <cstdint>
#include <vector>

#include "control/agreement.hpp"
#include "control/comm_watcher.hpp"
#include "control/control_context.hpp"
#include "control/control_tree.hpp"
#include "control/revocation.hpp"
#include "control/watchers.hpp"

namespace pith {

class ParentWatch {
 public:
  enum class Verdict { nothing, pass_by, give_up };

  ParentWatch(const ControlContext& context, ControlTree& tree, Revocation& revocation,
              Watchers& watchers, Agreement& agreement)
      : context_(context),
        tree_(tree),
        revocation_(revocation),
        watchers_(watchers),
        agreement_(agreement) {}

  // It has said something, is another one, or this rank stood still itself.
  void on_heard() { heard_ns_ = context_.now_ns; }
  void on_new_parent() { pinged_ns_ = 0; }
  // How long it has not answered, in seconds; 0 where nothing waits for it.
  double silence() const;
  // Asks it if need be, and ends what has waited too long.
  Verdict watch(const Stalls& stalls);

 private:
  double longest_wait(const Stalls& stalls) const;
  bool is_excluded() const;
  bool is_beside(const Stalls& stalls) const;
  void ping(double again_s);
  void end_long_waits(const Stalls& stalls, double waited);
  Error cause_of_wait(const std::vector<int>& members, int waits_for, double waited) const;

  const ControlContext& context_;
  ControlTree& tree_;
  Revocation& revocation_;
  Watchers& watchers_;
  Agreement& agreement_;
  std::uint64_t heard_ns_ = 0;
  std::uint64_t pinged_ns_ = 0;  // 0: nothing is waited for
  std::uint64_t silent_since_ns_ = 0;
};

}  // namespace pith
