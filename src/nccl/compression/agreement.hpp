// Runs calls that need more than Pith's own call: those that may be compressed, on which the ranks
// vote, and those passed to another NCCL.
//
// They hold references to all they use, since an abort by another thread may destroy the handle.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "api/comm_handle.hpp"
#include "nccl/call.hpp"
#include "nccl/extension.hpp"

namespace pith::nccl {

struct Waiting {
  NcclCall call;  // its comm may have been destroyed
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Extension> extension;
  std::shared_ptr<FallbackComm> there;  // the other NCCL's communicator; null: may be compressed
  std::optional<Factor> factor;         // of an operation created here, for the other NCCL
  bool in_background = false;           // outside a group, with blocking = 0
};

// Runs the calls together with those of a group that ends, if any: calls on streams are enqueued,
// the others run to their end. No communicator waits for another: its calls start as soon as its
// own ranks have voted, while the group's other calls run, because ranks without a group make them
// one after the other. Returns the first error; the remaining calls are made anyway, since other
// ranks depend on them.
Error run_waiting(std::span<const Waiting> calls, Group* group);

}  // namespace pith::nccl
