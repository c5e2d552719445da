// Agreement is a gather: every participant contributes a blob, the root decides when all that must
// have contributed, and the result goes to all. When the root dies, participants contribute to the
// next one, or send it the result if they have it; it calls the roll before it decides. No two live
// ranks see different results.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/control_messages.hpp"
#include "control/control_tree.hpp"
#include "control/membership.hpp"
#include "control/result_store.hpp"
#include "control/revocation.hpp"
#include "control/roll_call.hpp"
#include "control/watchers.hpp"

namespace pith {

class Agreement {
 public:
  using Done = std::function<void(const GatherResult&)>;
  // An agreement in which this rank takes part.
  struct Pending {
    Contribution own;
    Done done;
    std::uint64_t since_ns = 0;
    CallNote call = {};
    std::uint64_t reported_ns = 0;  // when the call was last reported as stalled
    std::vector<int> missing = {};  // participants that the root waits for
    bool warned = false;
  };
  using AllPending = std::map<GatherKey, Pending>;

  Agreement(const ControlContext& context, ControlTree& tree, Revocation& revocation,
            Watchers& watchers)
      : context_(context),
        tree_(tree),
        revocation_(revocation),
        watchers_(watchers),
        roll_(context, tree) {}

  void gather(Contribution own, Done done, CallNote call);
  AllPending& pending() { return pending_; }
  const AllPending& pending() const { return pending_; }
  // The agreement in which this rank takes part and whose call has this number.
  std::optional<CallNote> find_call(CommKey comm, std::uint32_t number) const;
  bool is_decided(const GatherKey& key) const { return results_.is_decided(key); }
  // Whether an agreement without `rank`, made here or passed on, has been waiting for `seconds`.
  bool others_wait_without(int rank, double seconds) const;

  // At the root: decides all that can be decided now.
  void decide_all();
  void conclude(const GatherKey& key, const Error& error, const std::map<int, std::string>& blobs);
  // Ends all agreements of this rank with an error.
  void refuse_all(const Error& error);
  // Ends one of them; returns the next entry.
  AllPending::iterator refuse(AllPending::iterator entry, const Error& error);

  void hear_contribution(Unpacker& in, const std::string& whole, int from);
  void hear_result(Unpacker& in, const std::string& whole, int from);
  void hear_missing(Unpacker& in, const std::string& whole);
  RollCall& roll() { return roll_; }
  void send_results();
  // Repeats contributions to a new parent, or as the new root: the last parent may have died with
  // them.
  void contribute_again();

  // remove: this rank has released the communicator. forget: the communicator is over.
  void remove(CommKey comm);
  void forget(CommKey comm);
  void add_known(std::set<CommKey>& known) const;

 private:
  // Kept at the root, and by ranks on the way to it for a new parent.
  struct Collecting {
    GatherNeed need = GatherNeed::all;
    std::vector<int> participants;
    std::map<int, std::string> blobs;
    std::uint64_t since_ns = 0;
    std::vector<int> missing;  // as last announced
    std::uint64_t told_ns = 0;
  };

  void decide(GatherKey key, Collecting& collecting);
  std::vector<int> missing_in(const GatherKey& key, const Collecting& collecting) const;
  // The place of a participant that has not contributed and never will; -1: none.
  int absent_in(const GatherKey& key, const Collecting& collecting) const;
  bool may_contribute(const GatherKey& key, int rank) const;
  Error cause_of_absence(int place, const std::vector<int>& participants) const;
  void tell_missing(const GatherKey& key, Collecting& collecting, const std::vector<int>& missing);
  void deliver(Pending& pending, const std::string& packed);
  void end(Pending& pending, GatherResult result);

  const ControlContext& context_;
  ControlTree& tree_;
  Revocation& revocation_;
  Watchers& watchers_;
  RollCall roll_;
  ResultStore results_;
  AllPending pending_;
  std::map<GatherKey, Collecting> collecting_;
};

}  // namespace pith
