// A collective or message call as made through NCCL's API, as a value that can be passed to Pith,
// to a compressor, or to another NCCL library.
#pragma once

#include <string_view>

#include "core/error.hpp"
#include "nccl/abi.h"
#include "pith/pith.h"

namespace pith::nccl {

enum class Kind : unsigned char {
  allreduce,
  broadcast,
  bcast,
  reduce,
  allgather,
  reduce_scatter,
  alltoall,
  gather,
  scatter,
  send,
  recv,
};
inline constexpr std::size_t kind_count = 11;
// The function's name without its prefix, such as "AllReduce".
std::string_view name_of(Kind kind);

struct NcclCall {
  Kind kind;
  const void* send;  // NULL if the kind has none
  void* recv;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;  // of the peer for messages
  ncclComm_t comm;
  cudaStream_t stream;
};

// An ncclComm_t is a pithComm_t under another name.
inline pithComm_t ours(ncclComm_t comm) { return reinterpret_cast<pithComm_t>(comm); }
inline pithComm_t* ours(ncclComm_t* comm) { return reinterpret_cast<pithComm_t*>(comm); }

// An error if NCCL has no such type: its number may be that of one of Pith's own.
Error check_type(std::string_view function, ncclDataType_t type);
// Calls the corresponding function of pith.h.
pithResult_t issue(const NcclCall& call);
// Runs the call through Pith, compression or the other NCCL: at once, or at the end of the group.
ncclResult_t submit(const NcclCall& call);
// An error if this thread's open group holds calls of the communicator that are kept here, beside
// Pith's own group. Precondition: comm is a communicator.
Error check_not_waiting(const char* function, pithComm_t comm);
// Checks, before a communicator takes part in this thread's open group (if any), that the group's
// communicators are all blocking or all non-blocking.
Error join_group(std::string_view function, bool blocking);

}  // namespace pith::nccl
