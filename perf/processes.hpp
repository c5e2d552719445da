// Child processes as the ranks of a local run. The parent only waits for them.
#pragma once

#include <functional>

namespace pith_bench {

// Forks `count` children, each of which calls body(0 .. count - 1) and exits with its result.
// Returns 0 if all results are 0, else 1. The first failure ends the others, as does the parent's
// death.
int run_processes(int count, const std::function<int(int)>& body);

// Ends this process without running destructors of static objects, since other threads may run.
[[noreturn]] void leave(int status);

}  // namespace pith_bench
