/* NCCL's binary interface, written anew: every symbol of libnccl.so.2, as of 2.28.9 and, for later
 * names, of 2.30.7. Values, sizes and argument lists are compared with NVIDIA's header at build
 * time where that is installed (tests/nccl/abi_check.cpp).
 *
 * C99. NCCL_FUNCTIONS(X) expands X(result, name, parameters) for all names. Every name also exists
 * with the prefix p; the plain name is the weak symbol.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
typedef struct CUstream_st* cudaStream_t; /* NOLINT(*-forward-declaration-namespace): CUDA's */
typedef struct ncclParamHandle* ncclParamHandle_t;
typedef struct ncclDevComm ncclDevComm_t; /* for device code: opaque here */

typedef struct {
  char internal[128];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
} ncclResult_t;

typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

#define NCCL_CONFIG_UNDEF_INT (-2147483647 - 1)
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_API_MAGIC 0xcafebeefu
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_SHRINK_ABORT 1
#define NCCL_WIN_DEFAULT 0
#define NCCL_WIN_COLL_SYMMETRIC 1
#define NCCL_VERSION_CODE 22809

/* Versions append fields; `size` is the size in the caller's version. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                     \
  {                                                                                 \
    sizeof(ncclConfig_t), NCCL_API_MAGIC, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NULL,  \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NULL, NCCL_CONFIG_UNDEF_INT,  \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,        \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT                                \
  }

#define NCCL_SIM_INFO_MAGIC 0x74685283u
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds */
} ncclSimInfo_t;
#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), NCCL_SIM_INFO_MAGIC, NCCL_VERSION_CODE, -1.0f }

/* --- types that the device interface shares with the host ------------------------------------- */

typedef struct {
  int nRanks, rank, stride;
} ncclTeam_t;

typedef uint32_t ncclDevResourceHandle_t;
typedef uint32_t ncclGinSignal_t;
typedef uint32_t ncclGinCounter_t;

typedef struct ncclDevResourceRequirements {
  struct ncclDevResourceRequirements* next;
  size_t bufferSize, bufferAlign;
  ncclDevResourceHandle_t* outBufferHandle;
  int ginSignalCount;
  int ginCounterCount;
  ncclGinSignal_t* outGinSignalStart;
  ncclGinCounter_t* outGinCounterStart;
} ncclDevResourceRequirements_t;

typedef struct ncclDevCommRequirements ncclDevCommRequirements_t;

typedef struct {
  ncclDevResourceHandle_t bufHandle;
  uint32_t nSlots;
} ncclLLA2AHandle_t;

typedef struct {
  ncclDevResourceHandle_t bufHandle;
  int nBarriers;
} ncclLsaBarrierHandle_t;

typedef struct {
  ncclGinSignal_t signal0;
  ncclDevResourceHandle_t bufHandle;
} ncclGinBarrierHandle_t;

typedef struct {
  ncclDevResourceHandle_t bufHandle;
  uint32_t size_log2;
} ncclGinOutboxHandle_t;

typedef struct {
  ncclDevResourceHandle_t bufHandle;
  ncclGinSignal_t signals;
  uint32_t size_log2;
  uint32_t nPeers_rcp32;
} ncclGinInboxA2AHandle_t;

typedef struct {
  void* mcBasePtr;
} ncclMultimemHandle_t;

typedef enum {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

typedef struct {
  int opCnt, peer, sigIdx, ctx;
} ncclWaitSignalDesc_t;

typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int rank;
  int nRanks;
  int cudaDev;
  int nvmlDev;
  bool deviceApiSupport;
  bool multimemSupport;
  int ginType;
  int nLsaTeams;
  bool hostRmaSupport;
  int railedGinType;
} ncclCommProperties_t;

/* --- functions -------------------------------------------------------------------------------- */

/* nccl.h of 2.28.9 */
#define NCCL_FUNCTIONS_HOST(X)                                                                   \
  X(ncclResult_t, ncclMemAlloc, (void** pointer, size_t size))                                   \
  X(ncclResult_t, ncclMemFree, (void* pointer))                                                  \
  X(ncclResult_t, ncclGetVersion, (int* version))                                                \
  X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                          \
  X(ncclResult_t, ncclCommInitRankConfig,                                                        \
    (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t* config))            \
  X(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank))  \
  X(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int count, const int* devices))          \
  X(ncclResult_t, ncclCommInitRankScalable,                                                      \
    (ncclComm_t * comm, int nranks, int rank, int id_count, ncclUniqueId* ids,                   \
     ncclConfig_t* config))                                                                      \
  X(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                           \
  X(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                            \
  X(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                              \
  X(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int flags))                                  \
  X(ncclResult_t, ncclCommSplit,                                                                 \
    (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config))            \
  X(ncclResult_t, ncclCommShrink,                                                                \
    (ncclComm_t comm, int* exclude, int count, ncclComm_t* newcomm, ncclConfig_t* config,        \
     int flags))                                                                                 \
  X(const char*, ncclGetErrorString, (ncclResult_t result))                                      \
  X(const char*, ncclGetLastError, (ncclComm_t comm))                                            \
  X(void, ncclResetDebugInit, (void))                                                            \
  X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t * result))               \
  X(ncclResult_t, ncclCommCount, (ncclComm_t comm, int* count))                                  \
  X(ncclResult_t, ncclCommCuDevice, (ncclComm_t comm, int* device))                              \
  X(ncclResult_t, ncclCommUserRank, (ncclComm_t comm, int* rank))                                \
  X(ncclResult_t, ncclCommRegister, (ncclComm_t comm, void* buffer, size_t size, void** handle)) \
  X(ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void* handle))                           \
  X(ncclResult_t, ncclCommWindowRegister,                                                        \
    (ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags))               \
  X(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window))              \
  X(ncclResult_t, ncclRedOpCreatePreMulSum,                                                      \
    (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,       \
     ncclComm_t comm))                                                                           \
  X(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))                           \
  X(ncclResult_t, ncclReduce,                                                                    \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,  \
     ncclComm_t comm, cudaStream_t stream))                                                      \
  X(ncclResult_t, ncclBcast,                                                                     \
    (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,                 \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, ncclBroadcast,                                                                 \
    (const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, ncclAllReduce,                                                                 \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,            \
     ncclComm_t comm, cudaStream_t stream))                                                      \
  X(ncclResult_t, ncclReduceScatter,                                                             \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,            \
     ncclComm_t comm, cudaStream_t stream))                                                      \
  X(ncclResult_t, ncclAllGather,                                                                 \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,           \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, ncclAlltoAll,                                                                  \
    (const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,           \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, ncclGather,                                                                    \
    (const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, ncclScatter,                                                                   \
    (const void* send, void* recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, ncclSend,                                                                      \
    (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, ncclRecv,                                                                      \
    (void* recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                   \
     cudaStream_t stream))                                                                       \
  X(ncclResult_t, ncclGroupStart, (void))                                                        \
  X(ncclResult_t, ncclGroupEnd, (void))                                                          \
  X(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info))

/* nccl_device.h of 2.28.9 */
#define NCCL_FUNCTIONS_DEVICE(X)                                                            \
  X(ncclResult_t, ncclDevCommCreate,                                                        \
    (ncclComm_t comm, const ncclDevCommRequirements_t* requirements, ncclDevComm_t* out))   \
  X(ncclResult_t, ncclDevCommDestroy, (ncclComm_t comm, const ncclDevComm_t* device))       \
  X(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm))                                           \
  X(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm))                                             \
  X(ncclTeam_t, ncclTeamRail, (ncclComm_t comm))                                            \
  X(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank))                 \
  X(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank))                   \
  X(int, ncclLLA2ACalcSlots, (int element_count, int element_bytes))                        \
  X(ncclResult_t, ncclLLA2ACreateRequirement,                                               \
    (int blocks, int slots, ncclLLA2AHandle_t* handle, ncclDevResourceRequirements_t* out)) \
  X(ncclResult_t, ncclLsaBarrierCreateRequirement,                                          \
    (ncclTeam_t team, int barriers, ncclLsaBarrierHandle_t* handle,                         \
     ncclDevResourceRequirements_t* out))                                                   \
  X(ncclResult_t, ncclGinBarrierCreateRequirement,                                          \
    (ncclComm_t comm, ncclTeam_t team, int barriers, ncclGinBarrierHandle_t* handle,        \
     ncclDevResourceRequirements_t* out))

/* Since 2.29 */
#define NCCL_FUNCTIONS_LATER(X)                                                                    \
  X(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags))                                   \
  X(ncclResult_t, ncclCommResume, (ncclComm_t comm))                                               \
  X(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t * value))   \
  X(ncclResult_t, ncclCommGrow,                                                                    \
    (ncclComm_t comm, int nranks, const ncclUniqueId* id, int rank, ncclComm_t* newcomm,           \
     ncclConfig_t* config))                                                                        \
  X(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId * id))                       \
  X(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t * out))          \
  X(ncclResult_t, ncclPutSignal,                                                                   \
    (const void* send, size_t count, ncclDataType_t type, int peer, ncclWindow_t window,           \
     size_t offset, int signal, int context, unsigned int flags, ncclComm_t comm,                  \
     cudaStream_t stream))                                                                         \
  X(ncclResult_t, ncclSignal,                                                                      \
    (int peer, int signal, int context, unsigned int flags, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclResult_t, ncclWaitSignal,                                                                  \
    (int count, ncclWaitSignalDesc_t* signals, ncclComm_t comm, cudaStream_t stream))              \
  X(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t window, void** pointer))       \
  X(ncclResult_t, ncclGetPeerDevicePointer,                                                        \
    (ncclWindow_t window, size_t offset, int peer, void** pointer))                                \
  X(ncclResult_t, ncclGetLsaDevicePointer,                                                         \
    (ncclWindow_t window, size_t offset, int rank, void** pointer))                                \
  X(ncclResult_t, ncclGetMultimemDevicePointer,                                                    \
    (ncclWindow_t window, size_t offset, ncclMultimemHandle_t multimem, void** pointer))           \
  X(ncclResult_t, ncclGetLsaMultimemDevicePointer,                                                 \
    (ncclWindow_t window, size_t offset, void** pointer))                                          \
  X(ncclResult_t, ncclGinInboxA2ACreateRequirement,                                                \
    (ncclTeam_t peers, int blocks, int size_log2, ncclGinInboxA2AHandle_t* handle,                 \
     ncclDevResourceRequirements_t* out))                                                          \
  X(ncclResult_t, ncclGinOutboxCreateRequirement,                                                  \
    (int blocks, int size_log2, ncclGinOutboxHandle_t* handle,                                     \
     ncclDevResourceRequirements_t* out))                                                          \
  X(ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char* key))                       \
  X(ncclResult_t, ncclParamGet, (ncclParamHandle_t handle, void* out, int room, int* size))        \
  X(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t handle, const char** out))                   \
  X(ncclResult_t, ncclParamGetParameter, (const char* key, const char** value, int* size))         \
  X(ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* size))                  \
  X(void, ncclParamDumpAll, (void))                                                                \
  X(ncclResult_t, ncclParamGetI8, (ncclParamHandle_t handle, int8_t * out))                        \
  X(ncclResult_t, ncclParamGetI16, (ncclParamHandle_t handle, int16_t * out))                      \
  X(ncclResult_t, ncclParamGetI32, (ncclParamHandle_t handle, int32_t * out))                      \
  X(ncclResult_t, ncclParamGetI64, (ncclParamHandle_t handle, int64_t * out))                      \
  X(ncclResult_t, ncclParamGetU8, (ncclParamHandle_t handle, uint8_t * out))                       \
  X(ncclResult_t, ncclParamGetU16, (ncclParamHandle_t handle, uint16_t * out))                     \
  X(ncclResult_t, ncclParamGetU32, (ncclParamHandle_t handle, uint32_t * out))                     \
  X(ncclResult_t, ncclParamGetU64, (ncclParamHandle_t handle, uint64_t * out))

#define NCCL_FUNCTIONS(X) NCCL_FUNCTIONS_HOST(X) NCCL_FUNCTIONS_DEVICE(X) NCCL_FUNCTIONS_LATER(X)

#ifndef NCCL_TYPES_ONLY
#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_DECLARE(result, name, parameters) \
  result name parameters;                      \
  result p##name parameters;
NCCL_FUNCTIONS(NCCL_DECLARE)
#undef NCCL_DECLARE

#ifdef __cplusplus
}
#endif
#endif
