// The ranks of a bench that has a command line of its own.
#pragma once

#include <functional>

#include "frame/meeting_point.hpp"

namespace pith_perf {

// The exit status of `program`, whose ranks run `body`: `ranks` local processes, each on a core of
// its own if they are `pinned` and there are enough; 0: this process is one, and a launcher has
// started it. What is thrown is printed.
int run_ranks(const char* program, int ranks, bool pinned,
              const std::function<void(const Start&)>& body);

}  // namespace pith_perf
