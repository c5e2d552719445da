// Facts about this process that change by a fork, and about its main thread.
#pragma once

namespace pith::python {

// To be called when the module is loaded.
void watch_process();
// Incremented in the child of every fork.
unsigned fork_generation();
// Whether this is the thread on which Python runs the handlers of signals.
bool on_main_thread();

}  // namespace pith::python
