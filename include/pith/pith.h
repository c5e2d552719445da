/* Pith: collective communication for any worker on any link.
 *
 * Conventions, valid for every function below:
 *  1. Every call returns a pithResult_t. On failure pithGetLastError(NULL) gives this thread's
 *     message, which names the argument, its value and what was expected.
 *  2. Counts are in elements of `type`, never bytes. Buffers may start at any byte address.
 *  3. Buffers belong to the caller. On host memory the stream is NULL and a call outside a group
 *     returns when its result is there; the buffers may be freed right after that.
 *  4. In place: send == recv (AllReduce, Broadcast, Reduce at the root); send == recv + rank *
 *     sendcount (AllGather, Gather at the root); recv == send + rank * recvcount (ReduceScatter,
 *     Scatter at the root). Any other overlap of send and recv is the caller's error.
 *  5. One communicator is driven by one thread at a time; different communicators may be driven
 *     by different threads. Abort and GetLastError may be called from any thread.
 *  6. Groups are per thread. Calls in a group start at the outermost pithGroupEnd.
 *  7. A refused call (pithInvalidArgument) sent nothing and changed nothing.
 *  8. A buffer that a rank's role does not use may be NULL and is not looked at; so may any buffer
 *     where the count is 0.
 *  9. No call terminates the process and no C++ exception leaves the library.
 * 10. A process may end at any time, with or without pithCommDestroy. Others' calls fail only where
 *     they still need it: what it had sent is delivered. Calls that begin once its death is known
 *     fail at once; an end in order (exit, return from main) is no death.
 */
#ifndef PITH_H
#define PITH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PITH_MAJOR 0
#define PITH_MINOR 1
#define PITH_PATCH 0
#define PITH_VERSION_CODE (PITH_MAJOR * 10000 + PITH_MINOR * 100 + PITH_PATCH)

#define PITH_UNIQUE_ID_BYTES 128

#if defined(__GNUC__)
#define PITH_API __attribute__((visibility("default")))
#else
#define PITH_API
#endif

typedef struct pithComm* pithComm_t;
typedef struct pithRequest* pithRequest_t;
typedef struct pithCompressor* pithCompressor_t;
/* CUstream, cudaStream_t. NULL: none for host memory and barriers; for memory of a GPU, and for
 * calls all of whose buffers are NULL of a thread that has a CUDA context, the legacy default
 * stream, where the CUDA driver had been loaded when the communicator was made.
 * Dense calls on a stream that is captured are captured too: all ranks capture the same ones in the
 * same order, and replay each as often. Graphs may keep the first 65,536 captured calls of a
 * communicator for ever, and as many messages to or from one rank. Of later ones the nth can be
 * captured when the graphs of the one 65,536 before it are gone, unless that is one of the first;
 * else it is pithInvalidUsage, and not captured. */
typedef void* pithStream_t;

/* Carries the address of the bootstrap root and a 128-bit secret: keep it as private as the data.
 */
typedef struct {
  char internal[PITH_UNIQUE_ID_BYTES];
} pithUniqueId;

typedef enum {
  pithSuccess = 0,
  pithUnhandledCudaError = 1,
  pithSystemError = 2, /* also: no memory for a call; then the other ranks get pithRemoteError */
  pithInternalError = 3,
  pithInvalidArgument = 4,
  pithInvalidUsage = 5,
  pithRemoteError = 6,
  pithInProgress = 7
} pithResult_t;

typedef enum {
  pithInt8 = 0,
  pithUint8 = 1,
  pithInt32 = 2,
  pithUint32 = 3,
  pithInt64 = 4,
  pithUint64 = 5,
  pithFloat16 = 6,
  pithFloat32 = 7,
  pithFloat64 = 8,
  pithBfloat16 = 9,
  pithFloat8e4m3 = 10,
  pithFloat8e5m2 = 11
} pithDataType_t;

/* Integer sums wrap; integer avg is the wrapped sum divided towards zero. 16- and 8-bit floats
 * accumulate each hop in float32; 8-bit floats saturate, 16-bit ones overflow to infinity. Inputs
 * of a float16 or 8-bit avg are scaled by a power of two before they meet, so that no sum overflows
 * whose mean does not.
 * max and min: a NaN wins, and -0 < +0. */
typedef enum {
  pithSum = 0,
  pithProd = 1,
  pithMax = 2,
  pithMin = 3,
  pithAvg = 4,
  pithNumOps = 5, /* handles of pithRedOpCreatePreMulSum begin here */
  pithMaxRedOp = 0x7fffffff
} pithRedOp_t;

/* Where the scalar of pithRedOpCreatePreMulSum lies. */
typedef enum {
  pithScalarDevice = 0,       /* in memory that is read when a call runs: on device memory by the
                                 device, on host memory by the CPU */
  pithScalarHostImmediate = 1 /* in host memory, read before RedOpCreatePreMulSum returns */
} pithScalarResidence_t;

/* Options of a communicator. Begin with PITH_CONFIG_INITIALIZER, then set fields by name; a field
 * that is left undefined has its default. `size` lets the struct grow with later versions. */
#define PITH_CONFIG_UNDEF_INT (-2147483647 - 1)
#define PITH_CONFIG_UNDEF_PTR NULL
#define PITH_CONFIG_MAGIC 0x70697468u
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;         /* 1 (default): calls return when they are done; 0: at once */
  const char* commName; /* the caller's name for it, told at PITH_LOG=debug;
                           NULL: that of its parent, or none. Copied */
} pithConfig_t;
#define PITH_CONFIG_INITIALIZER                                                        \
  {                                                                                    \
    sizeof(pithConfig_t), PITH_CONFIG_MAGIC, PITH_VERSION_CODE, PITH_CONFIG_UNDEF_INT, \
        PITH_CONFIG_UNDEF_PTR                                                          \
  }

#define PITH_SPLIT_NOCOLOR (-1)
#define PITH_SHRINK_DEFAULT 0
#define PITH_SHRINK_ABORT 1

/* major * 10000 + minor * 100 + patch. */
PITH_API pithResult_t pithGetVersion(int* version);
/* A static string; never NULL, also for values that are no result code. */
PITH_API const char* pithGetErrorString(pithResult_t result);
/* The message of the last error of `comm`, or of this thread where comm is NULL; "" when there was
 * none. Valid until the next failing call on that communicator or thread. */
PITH_API const char* pithGetLastError(pithComm_t comm);

/* Creates an id and a listening root inside the calling process; ship the 128 bytes to all ranks.
 * Each id serves one communicator. */
PITH_API pithResult_t pithGetUniqueId(pithUniqueId* id);
/* Collective over the nranks holders of `id`. Inside a group *comm is set at
 * once and ready when the group has ended; where that fails it is NULL again. */
PITH_API pithResult_t pithCommInitRank(pithComm_t* comm, int nranks, pithUniqueId id, int rank);
/* config NULL: as pithCommInitRank. With blocking = 0 the call returns pithInProgress and the
 * communicator is ready once pithCommGetAsyncError gives pithSuccess. */
PITH_API pithResult_t pithCommInitRankConfig(pithComm_t* comm, int nranks, pithUniqueId id,
                                             int rank, pithConfig_t* config);
/* Rank, size and the way to the other ranks from what mpirun (Open MPI, MPICH), srun or torchrun
 * has put into the environment, or PITH_RANK, PITH_SIZE and PITH_ROOT=host:port, which go first.
 * Collective over the ranks so started; every call makes a communicator of its own. Under mpirun
 * (PMIx, PMI) rank 0's id with a random secret goes through the launcher; else the secret is
 * PITH_SECRET or the content of PITH_SECRET_FILE, and without one all must be on one host, unless
 * PITH_INSECURE=1. */
PITH_API pithResult_t pithCommInitEnv(pithComm_t* comm);
/* n ranks in this process. devices NULL: host ranks. */
PITH_API pithResult_t pithCommInitAll(pithComm_t* comms, int n, const int* devices);
/* Finalize waits for work in flight; Destroy finalizes and frees; Abort makes running calls on
 * any thread return pithRemoteError and frees. NULL is accepted by all three. While this thread has
 * a group open that holds calls of comm, Finalize and Destroy are pithInvalidUsage and change
 * nothing, unless comm is revoked: pithGroupEnd runs the calls. Abort makes them fail. */
PITH_API pithResult_t pithCommFinalize(pithComm_t comm);
PITH_API pithResult_t pithCommDestroy(pithComm_t comm);
PITH_API pithResult_t pithCommAbort(pithComm_t comm);
/* Collective over comm. Ranks that give the same color, which is at least 0, get a communicator of
 * their own, in the order of their keys and then of their ranks; PITH_SPLIT_NOCOLOR gives NULL.
 * config NULL: that of comm. The child may outlive its parent. */
PITH_API pithResult_t pithCommSplit(pithComm_t comm, int color, int key, pithComm_t* newcomm,
                                    pithConfig_t* config);
/* Collective over the ranks of comm that live and are not among the n excluded ones; comm may be
 * revoked. exclude NULL: only the dead are left out, who may be named in `exclude` or not. Ranks
 * are numbered anew in their old order. It may wait for 2 * PITH_HEARTBEAT where a link is in
 * doubt. All name the same living ones, never themselves: else they get pithInvalidUsage, and an
 * excluded rank that calls this too gets pithRemoteError, both at once. Where comm is not revoked,
 * ranks that make another call meanwhile disagree, and all get pithInvalidUsage; the excluded may
 * be in any. One of the excluded that has stopped and is in the way is given up for the whole job
 * after 2 s. Two that live may have lost the link between them: then one of the two is left out as
 * well, whose call returns pithRemoteError and says so; whoever has lost most links, or the highest
 * such rank. It keeps what its compressors hold, and cannot shrink this communicator again. flags:
 * PITH_SHRINK_DEFAULT, or PITH_SHRINK_ABORT to end what still runs on comm first. */
PITH_API pithResult_t pithCommShrink(pithComm_t comm, int* exclude, int n, pithComm_t* newcomm,
                                     pithConfig_t* config, int flags);
/* What has become of the communicator: pithSuccess, pithInProgress while something started with
 * blocking = 0 runs, or the error that revoked it. While no call runs here also a rank's death,
 * which revokes nothing by itself. Waits for nothing. */
PITH_API pithResult_t pithCommGetAsyncError(pithComm_t comm, pithResult_t* result);
/* The ranks whose process or host is gone, in rising order; not who has stopped, was left out of a
 * shrink, or has lost a link only. *n: the room in `ranks` on entry, their
 * number on return; ranks NULL: the number only. */
PITH_API pithResult_t pithCommGetFailed(pithComm_t comm, int* ranks, int* n);
/* The number of the last call that all survivors of a shrink had completed; 0 where there is none,
 * or no shrink. Collectives, barriers and splits count, from 1, each call of a group, but
 * compressed calls that are one exchange once; no messages of pairs. Known on both communicators
 * of the shrink. */
PITH_API pithResult_t pithCommGetLastCompleted(pithComm_t comm, uint64_t* call);
PITH_API pithResult_t pithCommCount(pithComm_t comm, int* count);
PITH_API pithResult_t pithCommUserRank(pithComm_t comm, int* rank);
/* By which algorithm a collective of `count` elements, as its call takes them, runs on comm.
 * collective: as PITH_ALGO names it, "allreduce". *algorithm: its name there, "ring", which stays
 * valid. Of compressed calls pithCompressorStats_t tells. Waits for nothing. */
PITH_API pithResult_t pithCommGetAlgorithm(pithComm_t comm, const char* collective, size_t count,
                                           pithDataType_t type, const char** algorithm);

/* recv[i] = op over ranks of send[i]; the same bits on every rank. */
PITH_API pithResult_t pithAllReduce(const void* send, void* recv, size_t count, pithDataType_t type,
                                    pithRedOp_t op, pithComm_t comm, pithStream_t stream);
/* The same, in the root's recv only; recv is not used elsewhere. */
PITH_API pithResult_t pithReduce(const void* send, void* recv, size_t count, pithDataType_t type,
                                 pithRedOp_t op, int root, pithComm_t comm, pithStream_t stream);
/* send holds nranks * recvcount elements; rank r's recv = op over ranks of send + r * recvcount. */
PITH_API pithResult_t pithReduceScatter(const void* send, void* recv, size_t recvcount,
                                        pithDataType_t type, pithRedOp_t op, pithComm_t comm,
                                        pithStream_t stream);
/* recv = root's send. send is not used off root. */
PITH_API pithResult_t pithBroadcast(const void* send, void* recv, size_t count, pithDataType_t type,
                                    int root, pithComm_t comm, pithStream_t stream);
/* Broadcast in place. */
PITH_API pithResult_t pithBcast(void* buffer, size_t count, pithDataType_t type, int root,
                                pithComm_t comm, pithStream_t stream);
/* recv holds nranks * sendcount elements: rank r's send at recv + r * sendcount. */
PITH_API pithResult_t pithAllGather(const void* send, void* recv, size_t sendcount,
                                    pithDataType_t type, pithComm_t comm, pithStream_t stream);
/* Both buffers hold nranks * count elements: recv + r * count = rank r's send + rank * count. There
 * is no in place. */
PITH_API pithResult_t pithAlltoAll(const void* send, void* recv, size_t count, pithDataType_t type,
                                   pithComm_t comm, pithStream_t stream);
/* The root's recv holds nranks * sendcount elements: rank r's send at recv + r * sendcount. recv is
 * not used elsewhere. */
PITH_API pithResult_t pithGather(const void* send, void* recv, size_t sendcount,
                                 pithDataType_t type, int root, pithComm_t comm,
                                 pithStream_t stream);
/* The root's send holds nranks * recvcount elements: rank r's recv = send + r * recvcount. send is
 * not used elsewhere. */
PITH_API pithResult_t pithScatter(const void* send, void* recv, size_t recvcount,
                                  pithDataType_t type, int root, pithComm_t comm,
                                  pithStream_t stream);
/* A message to, or from, one rank. Those of a pair are matched in the order of the calls, each
 * direction by itself, whatever else the two ranks call; count and type must be the same at both
 * ends, else the receiver gets pithInvalidUsage. Send returns when the buffer may be changed: of a
 * long message, or one behind many that nobody has received, not before its Recv is called. Calls
 * that wait for each other belong in one group, where all of them are under way at once, as do Send
 * and Recv of a rank with itself. A message of count 0 is one, too. */
PITH_API pithResult_t pithSend(const void* send, size_t count, pithDataType_t type, int peer,
                               pithComm_t comm, pithStream_t stream);
PITH_API pithResult_t pithRecv(void* recv, size_t count, pithDataType_t type, int peer,
                               pithComm_t comm, pithStream_t stream);
/* Returns when every rank has called it. */
PITH_API pithResult_t pithBarrier(pithComm_t comm, pithStream_t stream);

/* An operation for sums whose inputs are multiplied by the scalar first (product and sum are each
 * rounded to `type`). Local: ranks may differ in the scalar, but all of them must use such an
 * operation in a call. It serves calls of this type on this communicator; a call keeps what it
 * needs, so that Destroy right after it is fine. */
PITH_API pithResult_t pithRedOpCreatePreMulSum(pithRedOp_t* op, void* scalar, pithDataType_t type,
                                               pithScalarResidence_t residence, pithComm_t comm);
PITH_API pithResult_t pithRedOpDestroy(pithRedOp_t op, pithComm_t comm);

/* Groups nest; only the outermost end starts the calls and returns when all results are there. */
PITH_API pithResult_t pithGroupStart(void);
PITH_API pithResult_t pithGroupEnd(void);
/* Like pithGroupEnd, but the calls run in the background. Several groups may be in flight. */
PITH_API pithResult_t pithGroupEndAsync(pithRequest_t* request);
/* done = 1: the return value is the group's result and the request is freed. */
PITH_API pithResult_t pithTest(pithRequest_t request, int* done);
/* Waits, returns the group's result and frees the request. */
PITH_API pithResult_t pithWait(pithRequest_t request);

/* Memory that ranks of one host reach directly; reductions over it copy nothing. 64-byte aligned.
 * MemFree right after a call returns is fine; NULL is accepted. */
PITH_API pithResult_t pithMemAlloc(void** pointer, size_t bytes);
PITH_API pithResult_t pithMemFree(void* pointer);
/* Announces a buffer that many calls will use. Local; never needed. A NULL handle is accepted by
 * Deregister; what is left goes with the communicator. */
PITH_API pithResult_t pithCommRegister(pithComm_t comm, void* buffer, size_t bytes, void** handle);
PITH_API pithResult_t pithCommDeregister(pithComm_t comm, void* handle);

/* --- compression -------------------------------------------------------------------------------
 *
 * The manual, with every scheme and key: compression.md beside this folder.
 *
 *   acc = send + residual. The elected elements of acc are sent and leave the residual; recv is
 *   their sum or mean over the ranks, zero elsewhere, with the same bits on every rank.
 *
 * A compressor is the state of one vector on one rank. Its first call fixes count, type (float32,
 * float16 or bfloat16) and communicator; another communicator is pithInvalidUsage until
 * pithCompressorReset, or until that one is shrunk, revoked or destroyed. Ranks use the same spec
 * (`name:key=value,...`), step by step. One compressor has one call at a time, also in a group;
 * meanwhile all functions below refuse it with pithInvalidUsage. Calls of one group with the same
 * spec and step become one exchange. On device memory a call is one of its stream, and over for its
 * compressor when the stream has passed it; streams that are captured refuse.
 */

/* Local. The spec is copied. */
PITH_API pithResult_t pithCompressorCreate(pithCompressor_t* compressor, const char* spec);
/* NULL is accepted. Not while a call uses it. */
PITH_API pithResult_t pithCompressorDestroy(pithCompressor_t compressor);
/* As new: zero residual, step 0, bound to nothing. */
PITH_API pithResult_t pithCompressorReset(pithCompressor_t compressor);
/* op: pithSum or pithAvg. send NULL: a gradient of zeros, so that what the residual holds is
 * elected. recv is dense and may equal send. If any rank's acc has an element that is not finite,
 * with nonfinite=propagate every recv is NaN and nothing is delivered; with drop such elements
 * count as zero; the residual keeps what it was. A call that is refused for its arguments changes
 * nothing, and none of its group begins; on a stream pithUnhandledCudaError and pithSystemError are
 * such refusals. After any other error the residual holds old residual plus gradient: retry with
 * send = NULL. */
PITH_API pithResult_t pithAllReduceCompressed(const void* send, void* recv, size_t count,
                                              pithDataType_t type, pithRedOp_t op,
                                              pithCompressor_t compressor, pithComm_t comm,
                                              pithStream_t stream);
/* The same call; the result is *n pairs of rising indices and values of `type`. Where capacity is
 * too small the first pairs are there, *n says how many there are, and, but for calls on streams,
 * the code is pithInvalidArgument; the call counts all the same. */
PITH_API pithResult_t pithAllReduceCompressedSparse(const void* send, uint64_t* indices,
                                                    void* values, size_t capacity, size_t* n,
                                                    size_t count, pithDataType_t type,
                                                    pithRedOp_t op, pithCompressor_t compressor,
                                                    pithComm_t comm, pithStream_t stream);

/* This rank's last call. Set `size` to sizeof(pithCompressorStats_t) first. */
typedef struct {
  size_t size;
  uint64_t calls;          /* bypassed ones included */
  uint64_t count;          /* elements of the vector */
  double density_target;   /* as the spec says */
  double density;          /* distinct elements that moved / count */
  double threshold;        /* the smallest magnitude elected here; ExDyna: its common threshold */
  uint64_t selected_local; /* elements this rank elected */
  uint64_t selected_union; /* distinct elements that moved */
  int leader;              /* -1 where there is none */
  int bypassed;            /* 1: the call was dense */
  double gain;             /* squared norm of what this rank sent / that of acc; 0/0 = 1 */
  double residual_norm;
  double imbalance; /* N max k_i / sum k_i */
  uint64_t bytes_sent;
  uint64_t bytes_received;
  uint64_t nonfinite;      /* elements of this rank's acc that were not finite */
  double select_seconds;   /* adding gradients, electing, taking values */
  double exchange_seconds; /* the rest of the call, writing its result included */
  double total_seconds;
  char algorithm[32];
} pithCompressorStats_t;
PITH_API pithResult_t pithCompressorGetStats(pithCompressor_t compressor,
                                             pithCompressorStats_t* stats);
/* `count` elements, that of the first call, before which it is pithInvalidUsage. With feedback=0
 * they are zero. */
PITH_API pithResult_t pithCompressorGetResidual(pithCompressor_t compressor, float* out,
                                                size_t count);
/* Memory of `count` float32 that is residual and send buffer at once: add the next gradient into it
 * and pass it as send, and no pass adds it. Fixes the count; type must be pithFloat32. It belongs
 * to the compressor. exdyna and micro read one of its N parts in a call of N ranks, and each part
 * once in N calls: an element that is not finite is seen when its part is read, or when another
 * rank elects its place, and not in every call before. */
PITH_API pithResult_t pithCompressorGetAccumulator(pithCompressor_t compressor, void** accumulator,
                                                   size_t count, pithDataType_t type);
/* Multiplies the residual: it follows a changed loss scale. Finite and not zero. */
PITH_API pithResult_t pithCompressorScale(pithCompressor_t compressor, float factor);
/* The state as bytes. buffer NULL: *bytes is set to their number; else *bytes is the room on entry
 * and the number on return. */
PITH_API pithResult_t pithCompressorSave(pithCompressor_t compressor, void* buffer, size_t* bytes);
/* Adds the residual of a saved state of the same spec; step, threshold and partition are those of
 * the first one loaded, or the compressor's own where it has called. Bytes that are damaged or
 * foreign are pithInvalidArgument and change nothing. With N' < N ranks, rank r loads those of r,
 * r + N', ... in this order. */
PITH_API pithResult_t pithCompressorLoad(pithCompressor_t compressor, const void* buffer,
                                         size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
