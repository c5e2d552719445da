// Adds to a new communicator what libnccl.so.2 keeps beside Pith's state: the device of the calling
// thread, and the twin in the other NCCL.
//
// The twin is created here and not by the first call that needs it, because all ranks take part
// here: a message involves only two of them.
#pragma once

#include <span>
#include <string>

#include "core/error.hpp"
#include "cuda/driver_api.hpp"
#include "pith/pith.h"

namespace pith::nccl {

// Enables this for every communicator of InitRank, Split, Shrink and Grow.
void complete_new_communicators();
// While it lives, communicators that this thread creates are made from an id.
class FromId {
 public:
  FromId(int ranks, std::string id);
  ~FromId();
  FromId(const FromId&) = delete;
  FromId& operator=(const FromId&) = delete;
};
// While it lives, communicators that this thread creates are grown. They count in the job from when
// they are made: a growth may be refused or fail on some ranks only.
class Growing {
 public:
  Growing();
  ~Growing();
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;
};
// For all ranks of InitAll, which this thread owns. `devices`: NULL, or one per rank.
Error complete_all(std::span<const pithComm_t> comms, const int* devices);

}  // namespace pith::nccl
