// Whether this rank's parent has stopped, for nobody knows how long, and what to do then.
//
// The root decides when a call or an agreement has taken too long. If the root or a rank on the way
// to it has stopped, each rank must decide for itself. A stopped parent that blocks ranks which do
// not wait for it is passed by; one that was left out of a shrink is given up.
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

  // The parent has sent something, or this rank was stopped itself.
  void on_heard() { heard_ns_ = context_.now_ns; }
  void on_new_parent() { pinged_ns_ = 0; }
  // Seconds without an answer; 0 where nothing waits for the parent.
  double silence() const;
  // Pings the parent if need be, and ends waits that take too long.
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
  std::uint64_t pinged_ns_ = 0;  // 0: nothing waits for the parent
  std::uint64_t silent_since_ns_ = 0;
};

}  // namespace pith
