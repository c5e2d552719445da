// The report of --resources: what Pith needs in addition to the user's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace pith_perf {

// For one rank and size. Negative: not available. Sent between ranks as bytes.
struct Usage {
  std::uint64_t bytes = 0;          // of the call
  double allocations = -1;          // per call
  double system_calls = -1;         // per call, without the next
  double waiting_calls = -1;        // per call: those that wait, yield or wake
  std::int64_t scratch_bytes = -1;  // mean over ranks
};

// Anonymous memory of this process, with shared pages divided among their users; -1 if the kernel
// does not tell.
std::int64_t resident_bytes();

// Counts what `times` calls of one() use; steady state only if calls were made before.
Usage usage_of(int times, const std::function<void()>& one);

}  // namespace pith_perf
