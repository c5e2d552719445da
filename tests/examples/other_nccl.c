/* A libnccl.so.2 that does nothing, in place of NVIDIA's: the example is linked with it, and runs
 * on Pith only if LD_PRELOAD brings it there. */
#include <nccl.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED ncclResult_t ncclGetVersion(int* version) {
  *version = 99999;
  return ncclSuccess;
}
EXPORTED const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError ? "this library does nothing" : "?";
}
EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  (void)id;
  return ncclSystemError;
}
EXPORTED ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  (void)comm, (void)nranks, (void)id, (void)rank;
  return ncclSystemError;
}
EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  (void)comm;
  return ncclSystemError;
}
EXPORTED ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                                    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  (void)send, (void)recv, (void)count, (void)type, (void)op, (void)comm, (void)stream;
  return ncclSystemError;
}
EXPORTED ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type,
                                    int root, ncclComm_t comm, cudaStream_t stream) {
  (void)send, (void)recv, (void)count, (void)type, (void)root, (void)comm, (void)stream;
  return ncclSystemError;
}
