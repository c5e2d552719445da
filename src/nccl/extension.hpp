// State of libnccl.so.2 for a communicator in addition to Pith's own. Created on first use; most
// communicators have none.
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

// A window is a plain registration: only the communicator's own calls access it.
struct ncclWindow_vidmem {
  pithComm_t comm;
  void* buffer;
  std::size_t bytes;
};

namespace pith::nccl {

struct Extension {
  std::atomic<bool> revoked{false};          // by ncclCommRevoke
  std::atomic<bool> has_descendants{false};  // a child was begun after that
  std::atomic<Code> told{Code::success};     // by the last ncclCommGetAsyncError
  int device = 0;                            // set before the communicator is visible to others
  std::shared_ptr<const JobPart> job_part;   // if created from an id and needed for "world"
  std::unique_ptr<Compression> compression;  // null: off; used by the thread that makes calls

  // Guarded: accessed by any thread.
  std::mutex guard;
  bool closed = false;  // the handle belongs to the thread that destroys it
  std::vector<std::unique_ptr<ncclWindow_vidmem>> windows;
  // Null: none, now and later.
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

// Null if there is none. Precondition: comm is a communicator.
std::shared_ptr<Extension> find_extension(pithComm_t comm);
std::shared_ptr<Extension> extension_of(pithComm_t comm);
// The error of ncclCommGetAsyncError, for which everything that runs on the communicator is
// refused. Unlike in NCCL, queries and registrations are not refused, since the survivors may
// shrink it. Precondition: comm is a communicator.
Error async_error_of(pithComm_t comm);

}  // namespace pith::nccl
