// From checked arguments to the communicator: at once, on a stream, or when the group ends.
#pragma once

#include "api/group.hpp"
#include "collectives/compressed.hpp"
#include "pith/pith.h"

namespace pith::api {

inline Bytes bytes_at(const void* memory) {
  // Algorithms never write to what they send; one span type keeps them simple.
  return {const_cast<std::byte*>(static_cast<const std::byte*>(memory)), 0};
}

// Inside a group the call is remembered, else it runs, which completes `args`: a copy of them is
// not for nothing in a short call.
Error submit(pithComm_t comm, CollectiveArgs& args, pithStream_t stream);
Error submit(pithComm_t comm, Message message, pithStream_t stream);
// The compressor must be free.
Error submit(const char* function, pithComm_t comm, const std::shared_ptr<Compressor>& compressor,
             const CompressedTensor& tensor, pithStream_t stream);
// A refused call inside a group is the group's result too.
Error conclude(Error error);

}  // namespace pith::api
