// How many system calls the threads of this process make while something runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace pith_perf {

struct SystemCalls {
  std::uint64_t waiting = 0;  // that wait, yield or wake: poll, futex, sched_yield, ...
  std::uint64_t other = 0;
};

// Runs body once and counts what all threads do meanwhile, its own starting and ending excluded.
// Nothing where tracing is not allowed; body has run all the same.
std::optional<SystemCalls> count_system_calls(const std::function<void()>& body);

}  // namespace pith_perf
