// Agreement on parameters that change while calls run, for each communicator apart.
//
// Its rank 0 proposes them. The proposal goes to all ranks as a fact does. Each member answers with
// the number of a call, a few after its next one, that it promises not to begin before it hears how
// this ends (epoch_gate.hpp), or refuses. That is its contribution to an agreement, whose result
// all live members see alike. Where all have promised, the parameters hold from the latest of these
// calls on, which nobody has begun; else all cancel. So no two members have different parameters in
// a call, whatever arrives when. A rank that cannot learn the result makes no call from the one
// that it has promised on.
//
// The few calls are those that a rank makes in about the time of an agreement, so mostly none
// waits; but never many, as the next ones may be much slower, and the change would come late. Where
// calls come faster than that, the one at the promise waits for the rest of the agreement.
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
  bool propose(CommKey comm, const std::string& blob);
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
    std::uint64_t heard_ns = 0;
  };
  // How fast the calls of a communicator come.
  struct Pace {
    std::uint32_t number = 0;  // of the next call
    std::uint64_t at_ns = 0;   // when it was that
    double calls = 0;          // in the time of an agreement, before
  };

  void answer(Last& last);
  std::uint32_t margin(CommKey comm, const EpochGate& gate) const;
  void measure(CommKey comm, const EpochGate& gate);
  bool can_propose(CommKey comm, const EpochGate& gate) const;
  bool has_rested(CommKey comm) const;
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
