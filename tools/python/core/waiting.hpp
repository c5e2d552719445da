// Calls that may wait. The GIL is released meanwhile, and on the main thread the handlers of
// signals run: if one raises, as that of Ctrl-C does, the wait ends and the call's communicators
// are revoked.
#pragma once

#include "errors.hpp"
#include "nanobind/nanobind.h"
#include "process.hpp"

namespace pith::python {

// A wait of this thread. Waits nest where the handler of a signal makes calls of its own.
class Wait {
 public:
  Wait();
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  // Whether the handler of a signal has raised; its exception is set.
  bool raised() const { return raised_; }
  // Ends all waits of this thread. To be called by the handler of a signal.
  static void end_all();

 private:
  static int look_at_signals(void* self);

  Wait* const outer_;
  const bool looks_;
  bool raised_ = false;
  bool ended_ = false;
};

// Runs `call`, which returns a pithResult_t and touches no Python object. Raises what the handler
// of a signal has raised meanwhile.
template <class Call>
Outcome without_gil(Call call) {
  Outcome outcome;
  bool raised = false;
  {
    const WithoutGil released;
    const Wait wait;
    outcome = outcome_of(call());
    raised = wait.raised();
  }
  if (raised) throw nb::python_error();
  return outcome;
}

}  // namespace pith::python
