// A new root calls the roll. Results travel along the same connections as facts and ahead of them,
// so once all living ranks have answered, the root knows every result and may decide.
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
  // At the root: whether all living ranks have answered. The roll is called anew after every death
  // or departure: a result from that rank may have been on its way to one that had answered.
  bool is_complete();
  void hear_roll(Unpacker& in, const std::string& whole);
  void hear_present(Unpacker& in, const std::string& whole);
  // Sends the last roll to a child that has just connected.
  void tell(int child);

 private:
  bool all_present() const;

  const ControlContext& context_;
  ControlTree& tree_;
  std::string roll_;  // the last roll
  bool due_ = false;  // only at a root that was not the first one
  std::uint64_t since_ns_ = 0;
  std::uint32_t gone_ = 0;  // deaths and departures known at the last roll
  std::set<int> present_;
};

}  // namespace pith
