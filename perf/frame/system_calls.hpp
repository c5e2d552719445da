// Counts the system calls that this process's threads make while a function runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace pith_perf {

struct SystemCalls {
  std::uint64_t waiting = 0;  // that wait, yield or wake: poll, futex, sched_yield, ...
  std::uint64_t other = 0;
};

// Runs body once and counts the calls of all threads meanwhile, without those of the tracing
// itself. Empty if tracing is not allowed; body runs anyway.
std::optional<SystemCalls> count_system_calls(const std::function<void()>& body);

}  // namespace pith_perf
