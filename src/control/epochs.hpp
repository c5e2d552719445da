// Agreement on parameters that change while calls run, for each communicator apart.
//
// Its rank 0 proposes them, and a call number well ahead from which they hold. The proposal goes to
// all ranks as a fact does. Each member promises that its calls do not pass that number before it
// hears how this ends, or refuses, since they may have passed it; that is its contribution to an
// agreement, whose result all live members see alike: commit where all have promised, else cancel.
// So no two of them have different parameters in a call, whatever arrives when, and none waits
// unless the result comes later than its calls do (epoch_gate.hpp). A rank that cannot learn the
// result makes no call from that number on.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "control/agreement.hpp"
#include "control/control_context.hpp"
#include "control/control_messages.hpp"
#include "control/control_tree.hpp"
#include "control/epoch_gate.hpp"
#include "control/revocation.hpp"
#include "control/watchers.hpp"

namespace pith {

class Epochs {
 public:
  Epochs(const ControlContext& context, ControlTree& tree, Revocation& revocation,
         Watchers& watchers, Agreement& agreement)
      : context_(context),
        tree_(tree),
        revocation_(revocation),
        watchers_(watchers),
        agreement_(agreement) {}

  // See ControlPlane.
  bool propose(CommKey comm, const std::string& blob, std::uint32_t ahead);
  void hear_proposal(Unpacker& in, int from);
  // This rank holds the communicator from now on.
  void on_added(CommKey comm);
  void turn();

  // The open proposals: a break of the tree may have kept some from a rank.
  void pack(Packer& packer) const;
  void hear(Unpacker& in, int from);

  // The communicator is over.
  void forget(CommKey comm);
  void add_known(std::set<CommKey>& known) const;

 private:
  // A communicator's last one.
  struct Last {
    Proposal proposal;
    bool is_open = false;   // as far as this rank knows
    bool answered = false;  // by this rank
  };
  // How fast the calls of a communicator come that this rank may propose parameters to.
  struct Pace {
    std::uint32_t number = 0;
    std::uint64_t at_ns = 0;
    double per_s = 0;  // at the fastest lately
    bool measured = false;
  };

  void answer(Last& last);
  // 0: not known yet.
  std::uint32_t calls_ahead(CommKey comm) const;
  void measure(CommKey comm, const EpochGate& gate);
  bool can_propose(CommKey comm, const EpochGate& gate) const;
  void propose_wanted(CommKey comm, CommWatcher& watcher);

  const ControlContext& context_;
  ControlTree& tree_;
  Revocation& revocation_;
  Watchers& watchers_;
  Agreement& agreement_;
  std::map<CommKey, Last> last_;
  std::map<CommKey, Pace> paces_;
};

}  // namespace pith
