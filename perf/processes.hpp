// Child processes that are the ranks of a local run. The parent only waits for them.
#pragma once

#include <functional>

namespace pith_bench {

// Forks `count` children, of which each calls body(0 .. count - 1) and ends with its result; gives
// 0 where all did so with 0, else 1. The first failure ends the others, and so does the parent's
// death.
int run_processes(int count, const std::function<int(int)>& body);

// Ends this process without destructors of static objects, as other threads may still run.
[[noreturn]] void leave(int status);

}  // namespace pith_bench
