#include "waiting.hpp"

#include "pith/pith.h"

namespace pith::python {

namespace {

thread_local Wait* innermost = nullptr;

}  // namespace

// Only the main thread runs handlers; for others the check would do nothing.
Wait::Wait() : outer_(innermost), looks_(on_main_thread()) {
  if (looks_) pithSetInterrupt(&look_at_signals, this);
  innermost = this;
}

Wait::~Wait() {
  innermost = outer_;
  if (looks_) pithSetInterrupt(outer_ ? &look_at_signals : nullptr, outer_);
}

void Wait::end_all() {
  for (Wait* wait = innermost; wait; wait = wait->outer_) wait->ended_ = true;
}

int Wait::look_at_signals(void* self) {
  auto* const wait = static_cast<Wait*>(self);
  if (!wait->raised_ && !wait->ended_) {
    const nb::gil_scoped_acquire acquired;
    wait->raised_ = PyErr_CheckSignals() != 0;
  }
  return wait->raised_ || wait->ended_;
}

}  // namespace pith::python
