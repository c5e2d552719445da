#include "streams/undecided_calls.hpp"

#include <algorithm>

namespace pith {

bool UndecidedCalls::can_start(const StreamCall& call) const {
  return state_.revoked || call.choice->ready();
}

// A call that ends at once lets others begin, which may be added here meanwhile.
bool UndecidedCalls::progress() {
  bool moved = false;
  looked_at_.swap(calls_);
  for (StreamCall* call : looked_at_) {
    const bool starts = can_start(*call);
    starts ? decide_(*call) : calls_.push_back(call);
    moved |= starts;
  }
  looked_at_.clear();
  return moved;
}

bool UndecidedCalls::arm() {
  return std::none_of(calls_.begin(), calls_.end(),
                      [this](const StreamCall* call) { return can_start(*call); });
}

}  // namespace pith
