// The handle of a communicator in the C API.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "api/reduction_ops.hpp"
#include "api/registrations.hpp"
#include "comm/group.hpp"
#include "comm/submit.hpp"
#include "core/per_process.hpp"
#include "pith/pith.h"

// It keeps what must outlive a moved or failed communicator.
struct pithComm : pith::CallTarget {
  std::atomic<bool> being_made{false};  // by a thread of ours: nobody else may look at it
  std::atomic<bool> destroyed{false};   // nothing but this is left; see destroyed_handles.hpp
  bool finalized = false;
  const unsigned process = pith::fork_generation();  // that made it: a forked child is another one
  std::string name;
  std::shared_ptr<pith::Cancellation> making;  // while being_made
  pith::api::ReductionOps ops = {};
  pith::api::Registrations registrations = {};
  std::shared_ptr<void> attached;  // what a layer on top keeps with it; goes first
  std::atomic<bool> has_attached{false};

  // As its end would, but that the handle stays. Precondition: `destroyed`, and nothing runs on it.
  void let_go() {
    attached.reset();
    registrations.clear();
    ops.clear();
    making.reset();
    communicator.reset();
  }

  // Null where there is none, or not yet.
  pith::Communicator* made() const {
    return being_made.load(std::memory_order_acquire) ? nullptr : communicator.get();
  }
};
