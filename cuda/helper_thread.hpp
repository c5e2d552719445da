// A thread for what may wait inside the driver (mapping and unmapping memory): no call and no
// caller does so. One a process, started when first needed; it never ends.
// Threads: any.
#pragma once

#include <functional>

namespace pith::cuda {

// In the order of the calls. `work` must not throw.
void run_on_helper_thread(std::function<void()> work);

}  // namespace pith::cuda
