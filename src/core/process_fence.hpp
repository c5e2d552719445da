// A memory fence that one thread makes for all threads of its process, so that a thread that does
// something often needs none where another one does its part rarely.
#pragma once

#include <atomic>

namespace pith {

// Every running thread of the process executes a full fence before this returns, some microseconds
// later. False where the kernel cannot do that; always or never.
bool fence_all_threads();

// The other threads' part: keeps the compiler from exchanging what stands before and after it.
inline void fenced_from_elsewhere() { std::atomic_signal_fence(std::memory_order_seq_cst); }

}  // namespace pith
