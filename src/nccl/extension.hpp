// What libnccl.so.2 keeps with a communicator beside Pith's own state. Made when it is first
// needed; most communicators never have one.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "nccl/abi.h"
#include "nccl/compression/compression.hpp"
#include "nccl/extras.hpp"
#include "nccl/fallback/fallback.hpp"
#include "nccl/fallback/host_plan.hpp"
#include "pith/pith.h"

// A window is a plain registration: nobody reaches it but by the calls of the communicator.
struct ncclWindow_vidmem {
  pithComm_t comm;
  void* buffer;
  std::size_t bytes;
};

namespace pith::nccl {

struct Extension {
  std::atomic<bool> revoked{false};          // by ncclCommRevoke
  std::atomic<bool> has_descendants{false};  // begun since then
  std::atomic<Code> told{Code::success};     // by the last ncclCommGetAsyncError
  int device = 0;                            // known before anybody sees the communicator
  std::shared_ptr<const JobPart> job_part;   // where it was made from an id, and that matters
  std::unique_ptr<Compression> compression;  // null: not asked for; of the thread that makes calls

  // The rest comes from any thread: the guard is held.
  std::mutex guard;
  bool closed = false;  // the handle belongs to whoever destroys it
  std::vector<std::unique_ptr<ncclWindow_vidmem>> windows;
  // Null: there is none; nor is there any later.
  std::shared_ptr<FallbackComm> fallback;
  std::shared_ptr<HostPlan> host_plan;

  std::shared_ptr<FallbackComm> other_comm() {
    const std::lock_guard lock(guard);
    return fallback;
  }
  std::shared_ptr<HostPlan> plan() {
    const std::lock_guard lock(guard);
    return host_plan;
  }
};

// Null where there is none. Precondition: comm is a communicator.
std::shared_ptr<Extension> find_extension(pithComm_t comm);
std::shared_ptr<Extension> extension_of(pithComm_t comm);
// What ncclCommGetAsyncError tells of it, in words: also what all that runs on it is refused for.
// What is only asked or kept is not, unlike in NCCL, as who is left may shrink it. Precondition:
// comm is a communicator.
Error async_error_of(pithComm_t comm);

}  // namespace pith::nccl
