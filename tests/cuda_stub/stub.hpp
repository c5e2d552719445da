// What the stub libcuda offers beyond the driver API: launches, counters and strictness.
// Link with cuda_stub, or find the names by dlsym; a real libcuda has none of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/driver_api.hpp"

namespace pith::cuda {

// Calls made since the start or the last reset; refused calls count too.
struct StubCounters {
  std::uint64_t allocs = 0;    // device and pinned memory, registrations
  std::uint64_t frees = 0;     // and unregistrations
  std::uint64_t syncs = 0;     // stream, event and context synchronisation
  std::uint64_t queries = 0;   // stream and event queries
  std::uint64_t launches = 0;  // kernels, copies, fills, memory operations, host functions
  std::uint64_t graph_launches = 0;
  std::uint64_t pageable_copies = 0;            // would block the caller on a real device
  std::uint64_t host_functions = 0;             // run to their end
  std::uint64_t calls_from_host_functions = 0;  // forbidden by CUDA
  std::uint64_t blocked_host_functions = 0;     // longer than the limit, running ones included
  std::uint64_t host_copies = 0;                // between a device and pinned or pageable memory
  std::uint64_t ipc_opens = 0;                  // memory of other processes
  std::uint64_t ipc_closes = 0;
  std::uint64_t descriptors_exported = 0;  // of physical memory
  std::uint64_t network_flushes = 0;
  std::uint64_t blocks_together = 0;  // the most at once of kernels that wait
  std::uint64_t largest_grid = 0;     // in blocks
};

// What streams of a context share. An operation that waits at the head of a queue holds up what
// other streams have put there behind it.
struct StubQueues {
  std::size_t connections = 0;  // hardware queues of each priority; 0: one a stream
  std::size_t copy_queues = 0;  // for copies between host and device; 0: one a stream
  int priorities = 6;           // the greatest is 1 - priorities
};

enum class Strict : int {
  count = 0,  // forbidden calls are only counted
  fail = 1,  // they return CUDA_ERROR_NOT_PERMITTED; a host function that blocked fails its context
  abort = 2,  // they end the process with a message
};

extern "C" {
// A kernel launch: a copy of `args` is given to `function` when the stream gets there (under
// capture, in each replay; every run gets a fresh copy). The stream must belong to the current
// context.
CUresult pithStubLaunch(CUstream stream, void (*function)(void*), const void* args,
                        std::size_t bytes);
void pithStubCounters(StubCounters* counters);
// Of the current context: what is submitted after that many more kernels, copies and memory
// operations fails when it runs. The context then runs nothing of what is queued, and nearly every
// call returns CUDA_ERROR_LAUNCH_FAILED.
void pithStubFailAfter(std::int64_t operations);
// The same, but it is refused when it is submitted, and the context stays well.
void pithStubRefuseAfter(std::int64_t operations);
// Whether what one of these two asked for is still to come.
bool pithStubIsArmed();
// Of the current context: nothing that has not begun yet runs until this is called with false.
void pithStubPause(bool paused);
// Of the current context: of a kernel whose blocks wait for each other only the first `most` blocks
// find room, and no other one begins until this is called with more; 0: all do.
void pithStubRoomForBlocks(unsigned most);
// While somebody frees memory, which waits for its context, no other thread gets into the driver,
// but to wait as well, and to query where `queries` says so.
void pithStubLocks(bool locks, bool queries = true);
// Of streams that are made from now on.
void pithStubQueues(const StubQueues* queues);
// What the stream is capturing is the body of a conditional node, which takes no memory operations.
void pithStubCapturesBody(CUstream stream);
// From now on nobody learns what an address is without a current context: cuda.h allows that.
void pithStubNeedContext(bool needed);
// From now on memory of another process is "already mapped" while other memory of the same 2 MiB of
// it is open.
void pithStubOpenBlocksOnce(bool once);
// From now on a device has no more than this in one piece.
void pithStubLargestAllocation(std::size_t bytes);
// The allocation that begins here belongs to no context from now on, as memory of a pool does.
void pithStubDisown(CUdeviceptr address);
// The current context dies with its streams and what it has allocated, as in a reset of its device;
// the next one is at the same address. What is mapped stays readable. Nothing may run on it.
void pithStubRenewContext();
// Clears counters, sticky errors and what the functions above have set.
void pithStubReset();
void pithStubStrict(Strict strict, unsigned host_function_limit_ms);
}

}  // namespace pith::cuda
