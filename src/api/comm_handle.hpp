// The handle of a communicator in the C API.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "api/recent_buffers.hpp"
#include "api/reduction_ops.hpp"
#include "api/registrations.hpp"
#include "comm/group.hpp"
#include "comm/submit.hpp"
#include "core/per_process.hpp"
#include "pith/pith.h"

// Holds what must outlive a communicator that was moved or has failed.
struct pithComm : pith::CallTarget {
  std::atomic<bool> being_made{false};  // by a thread of the library; not usable yet
  std::atomic<bool> destroyed{false};   // all else is released; see destroyed_handles.hpp
  std::atomic<bool> in_call{false};     // see api/calling.hpp
  bool finalized = false;
  const unsigned process = pith::fork_generation();  // that made it; a forked child must not use it
  std::string name;
  std::shared_ptr<pith::Cancellation> making;  // while being_made
  pith::api::ReductionOps ops = {};
  pith::api::Registrations registrations = {};
  pith::api::RecentBuffers recent_buffers = {};
  std::vector<pith::Range> blocks = {};  // of the call being made, where they are uneven
  std::shared_ptr<void> attached;        // data of a layer on top; released first
  std::atomic<bool> has_attached{false};

  // Releases all that the handle owns, but not the handle. Precondition: `destroyed` is set, and
  // nothing runs on it.
  void let_go() {
    attached.reset();
    registrations.clear();
    ops.clear();
    blocks = {};
    std::shared_ptr<pith::Communicator> released;  // outside the lock, as its end takes a while
    const std::lock_guard lock(guard);
    making.reset();
    released.swap(communicator);
  }

  // The communicator; null if creation failed or has not ended. For a thread whose calls another
  // one waits for before it ends the handle.
  pith::Communicator* made() const {
    return being_made.load(std::memory_order_acquire) ? nullptr : communicator.get();
  }
  // The same, for any thread.
  std::shared_ptr<pith::Communicator> held() const {
    const std::lock_guard lock(guard);
    return being_made.load(std::memory_order_acquire) ? nullptr : communicator;
  }
};
