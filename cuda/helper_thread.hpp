// A thread for driver calls that may block (mapping and unmapping memory), so that no collective
// and no caller blocks in them. One per process, started at first use, never ends.
// Threads: any.
#pragma once

#include <functional>

namespace pith::cuda {

// Work runs in the order of the calls and must not throw.
void run_on_helper_thread(std::function<void()> work);

}  // namespace pith::cuda
