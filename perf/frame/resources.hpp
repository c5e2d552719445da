// What --resources reports: what Pith needs besides the user's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace pith_perf {

// One rank, one size. Negative: could not be counted. Crosses ranks as bytes.
struct Usage {
  std::uint64_t bytes = 0;          // of the call
  double allocations = -1;          // a call
  double system_calls = -1;         // a call, besides the next
  double waiting_calls = -1;        // a call: those that wait, yield or wake
  std::int64_t scratch_bytes = -1;  // mean over the ranks
};

// Memory of this process that is neither code nor file, shared pages divided among those who have
// them; -1 where the kernel does not say.
std::int64_t resident_bytes();

// Counts what `times` calls of one() take; they are steady state only if others came before.
Usage usage_of(int times, const std::function<void()>& one);

}  // namespace pith_perf
