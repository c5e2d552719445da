// Calls that need more than Pith's own call: those that may be compressed, on which the ranks of
// their communicator vote, and those that another NCCL makes.
//
// They hold what they use: an abort by another thread may take the handle away meanwhile.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "api/comm_handle.hpp"
#include "nccl/call.hpp"
#include "nccl/extension.hpp"

namespace pith::nccl {

struct Waiting {
  NcclCall call;  // its comm may be gone
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Extension> extension;
  std::shared_ptr<FallbackComm> there;  // null: may be compressed
  std::optional<Factor> factor;         // of an operation of ours, for the other NCCL
  bool in_background = false;           // alone, and blocking = 0
};

// Runs them, with the calls of a group that ends, if any: those on streams are enqueued, the others
// run to their end. One communicator waits for no other: its calls are made as soon as its own
// ranks have voted, and the group's other calls run meanwhile, as ranks without a group make them
// one after the other. The first error counts; the other calls are made all the same, for other
// ranks count on them.
Error run_waiting(std::span<const Waiting> calls, Group* group);

}  // namespace pith::nccl
