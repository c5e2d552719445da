// The operator new of programs that run out of memory where they are told to.
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>

inline constexpr std::size_t refuse_nothing = std::numeric_limits<std::size_t>::max();
// Allocations of any thread from this size on are refused.
extern std::atomic<std::size_t> refused_from;
// Of this thread's allocations the one before which so many are granted; negative: none.
extern thread_local long granted_before;
