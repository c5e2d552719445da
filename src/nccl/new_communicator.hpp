// What a communicator of NCCL's callers has from its beginning beside Pith's own: the device of
// the thread that asked for it, and its twin in the other NCCL.
//
// The twin is made here, and not by the first call that goes there, because all ranks are here: a
// message between two of them concerns nobody else.
#pragma once

#include <span>
#include <string>

#include "core/error.hpp"
#include "cuda/driver_api.hpp"
#include "pith/pith.h"

namespace pith::nccl {

// From now on, for every communicator of InitRank, Split and Shrink.
void complete_new_communicators();
// What this thread asks for while it lives is made from an id.
class FromId {
 public:
  FromId(int ranks, std::string id);
  ~FromId();
  FromId(const FromId&) = delete;
  FromId& operator=(const FromId&) = delete;
};
// All ranks of InitAll, which are this thread's. `devices`: NULL, or one each.
Error complete_all(std::span<const pithComm_t> comms, const int* devices);

}  // namespace pith::nccl
