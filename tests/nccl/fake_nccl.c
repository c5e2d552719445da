/* Another libnccl.so.2, of which tests can see that a call came to it: results are its marks. */
#include <stdlib.h>
#include <string.h>

#include "nccl/abi.h"

#define EXPORTED __attribute__((visibility("default")))

enum { version = 99999, mark = 0x5a, failing_count = 13, scaled_op = 1000 };

struct ncclComm {
  int rank, size;
  ncclResult_t state;
};

static __thread int depth;

EXPORTED ncclResult_t ncclGetVersion(int* out) {
  *out = version;
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (getenv("FAKE_NCCL_NO_ID")) return ncclSystemError;
  memset(id, mark, sizeof *id);
  return ncclSuccess;
}

/* Calls a public name of its own, as NCCL does: it must not come to somebody else. */
EXPORTED ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id,
                                             int rank, ncclConfig_t* config) {
  int own = 0;
  (void)config;
  if (ncclGetVersion(&own) != ncclSuccess || own != version) return ncclInternalError;
  for (size_t i = 0; i < sizeof id; ++i) {
    if (id.internal[i] != mark) return ncclInvalidArgument;
  }
  *comm = calloc(1, sizeof **comm);
  (*comm)->rank = rank;
  (*comm)->size = nranks;
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  free(comm);
  return ncclSuccess;
}
EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm) { return ncclCommDestroy(comm); }
EXPORTED ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state;
  return ncclSuccess;
}
EXPORTED const char* ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return "the fake's message";
}
EXPORTED ncclResult_t ncclGroupStart(void) {
  ++depth;
  return ncclSuccess;
}
EXPORTED ncclResult_t ncclGroupEnd(void) { return depth-- > 0 ? ncclSuccess : ncclInvalidUsage; }

EXPORTED ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                               ncclScalarResidence_t residence, ncclComm_t comm) {
  (void)type, (void)residence, (void)comm;
  *op = (ncclRedOp_t)(scaled_op + (int)*(float*)scalar);
  return ncclSuccess;
}
EXPORTED ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  (void)comm;
  return (int)op >= scaled_op ? ncclSuccess : ncclInvalidArgument;
}

/* Bytes of `what`: the mark, or the operation where that is one of ours. */
static ncclResult_t leave(void* recv, size_t count, int what, ncclComm_t comm) {
  if (depth == 0 || comm == NULL) return ncclInvalidUsage;
  if (count == failing_count) {
    comm->state = ncclSystemError;
    return ncclSystemError;
  }
  memset(recv, what, count);
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                                    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  (void)send, (void)type, (void)stream;
  return leave(recv, count, (int)op >= scaled_op ? (int)op - scaled_op : mark, comm);
}
EXPORTED ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                                    int root, ncclComm_t comm, cudaStream_t stream) {
  (void)send, (void)type, (void)root, (void)stream;
  return leave(recv, count, mark, comm);
}
EXPORTED ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  (void)send, (void)type, (void)root, (void)stream, (void)op;
  return leave(recv, count, mark, comm);
}

#define MOVES(name)                                                                           \
  EXPORTED ncclResult_t name(const void* send, void* recv, size_t count, ncclDataType_t type, \
                             ncclComm_t comm, cudaStream_t stream) {                          \
    (void)send, (void)type, (void)stream;                                                     \
    return leave(recv, count, mark, comm);                                                    \
  }
MOVES(ncclAllGather)
MOVES(ncclAlltoAll)
EXPORTED ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count,
                                        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                        cudaStream_t stream) {
  (void)op;
  return ncclAllGather(send, recv, count, type, comm, stream);
}

#define ROOTED(name)                                                                          \
  EXPORTED ncclResult_t name(const void* send, void* recv, size_t count, ncclDataType_t type, \
                             int root, ncclComm_t comm, cudaStream_t stream) {                \
    (void)root;                                                                               \
    return ncclAllGather(send, recv, count, type, comm, stream);                              \
  }
ROOTED(ncclGather)
ROOTED(ncclScatter)

EXPORTED ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                               ncclComm_t comm, cudaStream_t stream) {
  (void)send, (void)count, (void)type, (void)peer, (void)comm, (void)stream;
  return ncclSuccess;
}
EXPORTED ncclResult_t ncclRecv(void* recv, size_t count, ncclDataType_t type, int peer,
                               ncclComm_t comm, cudaStream_t stream) {
  (void)type, (void)peer, (void)stream;
  return leave(recv, count, mark, comm);
}
