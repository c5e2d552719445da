// A collective or message as NCCL's caller gave it, so that it can go to Pith, to a compressor, or
// to another NCCL.
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
// As in the function's name, without its prefix: "AllReduce".
std::string_view name_of(Kind kind);

struct NcclCall {
  Kind kind;
  const void* send;  // NULL where the kind has none
  void* recv;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;  // or peer
  ncclComm_t comm;
  cudaStream_t stream;
};

// The handle of a communicator is Pith's own.
inline pithComm_t ours(ncclComm_t comm) { return reinterpret_cast<pithComm_t>(comm); }
inline pithComm_t* ours(ncclComm_t* comm) { return reinterpret_cast<pithComm_t*>(comm); }

// By the function of pith.h for its kind.
pithResult_t issue(const NcclCall& call);
// Wherever it belongs, at once or when the group ends.
ncclResult_t submit(const NcclCall& call);
// An error where the group that this thread has open holds calls of the communicator here, beside
// Pith's own group. Precondition: it is one.
Error check_not_waiting(const char* function, pithComm_t comm);
// To be asked before a communicator takes part in this thread's group, if one is open: those of a
// group are all blocking, or none is.
Error join_group(std::string_view function, bool blocking);

}  // namespace pith::nccl
