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
    making.reset();
    communicator.reset();
  }

  // The communicator; null if creation failed or has not ended.
  pith::Communicator* made() const {
    return being_made.load(std::memory_order_acquire) ? nullptr : communicator.get();
  }
};
