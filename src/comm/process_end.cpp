#include "comm/process_end.hpp"

#include <algorithm>

#include "comm/communicator.hpp"
#include "core/clock.hpp"

namespace pith {

namespace {

// Constructed when the library is loaded, so it is destroyed after the program's globals, which may
// hold communicators, and while libraries loaded later, such as UCX, still work.
const struct AtExit {
  ~AtExit() { ProcessEnd::instance().leave_all(); }
} at_exit;

}  // namespace

void ProcessEnd::add(Communicator& communicator) {
  const std::lock_guard lock(mutex_);
  held_.push_back(&communicator);
}

void ProcessEnd::remove(Communicator& communicator) {
  const std::lock_guard lock(mutex_);
  std::erase(held_, &communicator);
}

// A control node leaves only if all its communicators have left.
void ProcessEnd::leave_all() {
  const std::lock_guard lock(mutex_);
  std::vector<ControlNode*> leaving;
  std::vector<ControlNode*> staying;
  const std::uint64_t deadline_ns = monotonic_ns() + Communicator::goodbye_ns;
  for (Communicator* communicator : held_) {
    (communicator->leave_with_process(deadline_ns) ? leaving : staying)
        .push_back(communicator->identity().control.get());
  }
  held_.clear();
  std::ranges::sort(leaving);
  leaving.erase(std::unique(leaving.begin(), leaving.end()), leaving.end());
  std::erase_if(leaving, [&](ControlNode* node) {
    return std::ranges::find(staying, node) != staying.end();
  });
  if (!leaving.empty()) ControlNode::leave_with_process(leaving);
}

}  // namespace pith
