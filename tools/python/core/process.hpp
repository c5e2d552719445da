// Facts about this process that change by a fork, about its main thread, and about its end.
#pragma once

#include "nanobind/nanobind.h"

namespace pith::python {

// To be called when the module is loaded.
void watch_process();
// Incremented in the child of every fork.
unsigned fork_generation();
// Whether this is the thread on which Python runs the handlers of signals.
bool on_main_thread();

// Gives the GIL away while it lives. A daemon thread that would take it again when the interpreter
// ends stops here for good, as Python itself does from 3.14 on: older versions unwind such a
// thread, which no destructor survives.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

}  // namespace pith::python
