// A new root calls the roll. Results move along the same connections as facts and ahead of them, so
// once all that live have answered there is no result that it does not know, and it may decide.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "control/control_context.hpp"
#include "control/control_tree.hpp"
#include "core/packing.hpp"

namespace pith {

class RollCall {
 public:
  RollCall(const ControlContext& context, ControlTree& tree) : context_(context), tree_(tree) {}

  // This rank has become the root.
  void begin();
  // At the root: whether all that live have answered. It is called anew after every death or
  // departure: what came from such a rank may have been on its way to one that had answered.
  bool is_complete();
  void hear_roll(Unpacker& in, const std::string& whole);
  void hear_present(Unpacker& in, const std::string& whole);
  // A child that has just come has not heard the last one.
  void tell(int child);

 private:
  bool all_present() const;

  const ControlContext& context_;
  ControlTree& tree_;
  std::string roll_;  // the last one
  bool due_ = false;  // at a root that was not the first one
  std::uint64_t since_ns_ = 0;
  std::uint32_t gone_ = 0;  // deaths and departures that were known at the call
  std::set<int> present_;
};

}  // namespace pith
