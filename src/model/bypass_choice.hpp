// Whether a vector's next calls are dense, where its density is fixed and bypass=auto: the faster
// of both ways, by the times of its own calls.
//
// Rounds of timed calls compare both ways on the same link. The way that is not taken is tried at
// once where it has not been measured and the fitted link (see density_choice.hpp) lets it seem
// near, and else when what that may cost is a hundredth of the time since. Each trial in vain
// doubles the wait for the next. In between calls are timed now and then: if their time has
// changed, a new round begins, and the other way's time is taken for what it may be at best.
#pragma once

#include "collectives/chooser.hpp"
#include "compress/density_control.hpp"
#include "model/compressed_cost.hpp"

namespace pith {

struct WayCosts {
  CallCost compressed;
  CallCost dense;
  LinkCost nominal;

  const CallCost& of(bool is_dense) const { return is_dense ? dense : compressed; }
};
WayCosts ways_of(const Spec& spec, std::size_t count, int ranks, const LinkCost& nominal);

struct WayStart {
  std::size_t count = 0;
  std::uint64_t step = 0;
  bool dense = false;  // what calls begin with
  bool open = false;   // measured times may change that
};
BypassControl start_ways(const WayCosts& costs, const WayStart& start);
// Plans the call of facts.step and the next agreement.
void choose_way(BypassControl& control, const WayCosts& costs, const BypassFacts& facts);

}  // namespace pith
