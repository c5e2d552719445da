/* Pith: collective communication for any worker on any link.
 *
 * Conventions, valid for every function below:
 *  1. Every call returns a pithResult_t. After a failure pithGetLastError(NULL) returns the calling
 *     thread's message, which names the argument, its value and what was expected.
 *  2. Counts are in elements of `type`, never bytes. Buffers may start at any byte address.
 *  3. The caller owns all buffers. For host memory the stream is NULL, and a call outside a group
 *     returns when its result is in the buffer. The buffers may be freed right after that.
 *  4. In place: send == recv (AllReduce, Scan, ExScan, Broadcast, Reduce at the root); send == recv
 *     + rank * sendcount (AllGather, Gather at the root); recv == send + rank * recvcount
 *     (ReduceScatter, Scatter at the root). Any other overlap of send and recv is the caller's
 *     error.
 *  5. One communicator is driven by one thread at a time; different communicators may be driven
 *     by different threads. Abort and GetLastError may be called from any thread.
 *  6. Groups are per thread. Calls in a group start at the outermost pithGroupEnd.
 *  7. A refused call (pithInvalidArgument) sent nothing and changed nothing; only a sparse result
 *     that does not fit its `capacity` is refused after the call.
 *  8. A buffer that a rank does not use in its role (recv of Reduce off the root) may be NULL and
 *     is never accessed. With a count of 0 the same holds for every buffer.
 *  9. No call terminates the process and no C++ exception leaves the library.
 * 10. A process may end at any time, with or without pithCommDestroy. What it has sent is still
 *     delivered, so a call of another rank fails only if it needs more from that process. An
 *     orderly end (exit, return from main) is not a death; any other end is, and calls that begin
 *     once a death is known fail at once.
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
/* A CUstream or cudaStream_t, or NULL. NULL means no stream for host memory and barriers. It means
 * the legacy default stream for GPU memory, and for a call with only NULL buffers from a thread
 * that has a CUDA context; both require that the CUDA driver was loaded when the communicator was
 * made.
 *
 * Dense calls on a stream in capture mode become part of the graph. All ranks must capture the same
 * calls in the same order and replay each equally often. The first 65,536 captured calls of a
 * communicator may stay in graphs for ever. To capture call n after them, the graphs that hold call
 * n - 65,536 must be gone, unless that is one of the first 65,536; else call n returns
 * pithInvalidUsage and is not captured. The same limits hold, separately, for the captured messages
 * to or from one rank. */
typedef void* pithStream_t;

/* Holds the address of the bootstrap root and a 128-bit secret: keep it as private as the data. */
typedef struct {
  char internal[PITH_UNIQUE_ID_BYTES];
} pithUniqueId;

typedef enum {
  pithSuccess = 0,
  pithUnhandledCudaError = 1,
  pithSystemError = 2, /* also: out of memory in a call; the other ranks get pithRemoteError */
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
  pithFloat8e5m2 = 11,
  pithComplex64 = 12, /* two float32, the real part first */
  pithComplex128 = 13 /* two float64 */
} pithDataType_t;

/* Integer sums wrap around. Integer avg is the wrapped sum divided by the number of ranks, rounded
 * towards zero. 16- and 8-bit floats are accumulated in float32 at each hop; 8-bit floats saturate,
 * 16-bit floats overflow to infinity. For avg of float16 and 8-bit floats the inputs are scaled by
 * a power of two before they are added, so that the sum does not overflow unless the mean does.
 * max and min: a NaN wins over any number, and -0 < +0.
 * band, bor and bxor combine each bit; land, lor and lxor take any number but 0 for true and give 0
 * or 1, also where only one operand exists. These six are for integer types.
 * Complex types have sum, prod and avg. A product is (ac - bd) + (ad + bc)i, each step rounded;
 * C's rules for infinite factors are not applied. */
typedef enum {
  pithSum = 0,
  pithProd = 1,
  pithMax = 2,
  pithMin = 3,
  pithAvg = 4,
  pithBand = 5,
  pithBor = 6,
  pithBxor = 7,
  pithLand = 8,
  pithLor = 9,
  pithLxor = 10,
  pithNumOps = 11, /* handles of pithRedOpCreatePreMulSum begin here */
  pithMaxRedOp = 0x7fffffff
} pithRedOp_t;

/* Where the scalar of pithRedOpCreatePreMulSum is, and when it is read. */
typedef enum {
  pithScalarDevice = 0,       /* read when a call runs: by the device in a call on device memory,
                                 by the CPU in a call on host memory */
  pithScalarHostImmediate = 1 /* host memory, read before pithRedOpCreatePreMulSum returns */
} pithScalarResidence_t;

/* Options of a communicator. Initialize with PITH_CONFIG_INITIALIZER, then set fields by name. A
 * field left undefined takes its default. `size` allows later versions to add fields. */
#define PITH_CONFIG_UNDEF_INT (-2147483647 - 1)
#define PITH_CONFIG_UNDEF_PTR NULL
#define PITH_CONFIG_MAGIC 0x70697468u
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;         /* 1 (default): calls return when they are done; 0: at once */
  const char* commName; /* the communicator's name in the log at PITH_LOG=debug; copied.
                           NULL: the name of its parent, if any */
  int timeout;          /* seconds that a call may stand still, in place of PITH_TIMEOUT; 0: for
                           ever. The same on all ranks. Of a communicator made from an id; its
                           children have it, too, whatever their config says */
} pithConfig_t;
#define PITH_CONFIG_INITIALIZER                                                        \
  {                                                                                    \
    sizeof(pithConfig_t), PITH_CONFIG_MAGIC, PITH_VERSION_CODE, PITH_CONFIG_UNDEF_INT, \
        PITH_CONFIG_UNDEF_PTR, PITH_CONFIG_UNDEF_INT                                   \
  }

#define PITH_SPLIT_NOCOLOR (-1)
#define PITH_SHRINK_DEFAULT 0
#define PITH_SHRINK_ABORT 1

/* major * 10000 + minor * 100 + patch. */
PITH_API pithResult_t pithGetVersion(int* version);
/* Returns a static string, never NULL, even for a value that is no result code. */
PITH_API const char* pithGetErrorString(pithResult_t result);
/* Returns the message of the last error on `comm`, or of the calling thread if comm is NULL; "" if
 * there was none. The string is valid until the next failing call on that communicator or thread.
 */
PITH_API const char* pithGetLastError(pithComm_t comm);

/* Creates an id and starts the bootstrap root, which listens in the calling process. The program
 * must send the 128 bytes to all ranks. Each id serves one communicator. */
PITH_API pithResult_t pithGetUniqueId(pithUniqueId* id);
/* Collective over the nranks ranks that have `id`. Inside a group *comm is set at once and ready
 * when the group has ended; if creation fails, *comm is NULL again. */
PITH_API pithResult_t pithCommInitRank(pithComm_t* comm, int nranks, pithUniqueId id, int rank);
/* config NULL: as pithCommInitRank. With blocking = 0 the call returns pithInProgress, and the
 * communicator is ready once pithCommGetAsyncError reports pithSuccess. */
PITH_API pithResult_t pithCommInitRankConfig(pithComm_t* comm, int nranks, pithUniqueId id,
                                             int rank, pithConfig_t* config);
/* Takes rank, size and the address of rank 0 from the environment: from PITH_RANK, PITH_SIZE and
 * PITH_ROOT=host:port if they are set, else from what mpirun (Open MPI, MPICH), srun or torchrun
 * has set. Collective over the ranks started in this way; every call makes a new communicator.
 * Under mpirun (PMIx, PMI) the launcher distributes rank 0's id with a random secret. Otherwise the
 * secret is PITH_SECRET or the content of PITH_SECRET_FILE; without one all ranks must be on one
 * host, unless PITH_INSECURE=1. */
PITH_API pithResult_t pithCommInitEnv(pithComm_t* comm);
/* Creates n ranks in this process. devices NULL: host ranks. */
PITH_API pithResult_t pithCommInitAll(pithComm_t* comms, int n, const int* devices);
/* Finalize waits for work in flight. Destroy finalizes comm and frees it. Abort makes running calls
 * on any thread return pithRemoteError, and frees comm. All three accept NULL. While the calling
 * thread has an open group with calls of comm, Finalize and Destroy return pithInvalidUsage and
 * change nothing, unless comm is revoked: call pithGroupEnd first, which runs the calls. Abort
 * makes these calls fail. */
PITH_API pithResult_t pithCommFinalize(pithComm_t comm);
PITH_API pithResult_t pithCommDestroy(pithComm_t comm);
PITH_API pithResult_t pithCommAbort(pithComm_t comm);
/* Collective over comm. Ranks that pass the same color (at least 0) form a new communicator,
 * ordered by key, then by rank in comm. A rank that passes PITH_SPLIT_NOCOLOR gets NULL. config
 * NULL: that of comm. The new communicator may outlive comm. */
PITH_API pithResult_t pithCommSplit(pithComm_t comm, int color, int key, pithComm_t* newcomm,
                                    pithConfig_t* config);
/* Makes a communicator of the survivors. Collective over the ranks of comm that are alive and not
 * among the n ranks in `exclude`; comm may be revoked. Survivors keep their order and are numbered
 * from 0. The call may wait for 2 * PITH_HEARTBEAT if a link is in doubt.
 *
 * exclude: NULL leaves out dead ranks only. Dead ranks may be named in it or not. All callers must
 * name the same living ranks, and none itself; else they get pithInvalidUsage at once. An excluded
 * rank that calls this function gets pithRemoteError at once. An excluded rank that is stopped and
 * holds up the survivors is treated as dead by the whole job after 2 s.
 *
 * If comm is not revoked and a rank makes another call instead, all ranks get pithInvalidUsage;
 * excluded ranks may be in any call. If two living ranks have lost the link between them, one of
 * the two is left out as well: the one that has lost most links, or of several such the highest
 * rank. Its call returns pithRemoteError with a message that says so. It keeps what its compressors
 * hold, and cannot shrink this communicator again.
 *
 * flags: PITH_SHRINK_DEFAULT, or PITH_SHRINK_ABORT to abort first what still runs on comm. */
PITH_API pithResult_t pithCommShrink(pithComm_t comm, int* exclude, int n, pithComm_t* newcomm,
                                     pithConfig_t* config, int flags);
/* Creates an id for one growth of comm, on the member that calls it, the coordinator; otherwise as
 * pithGetUniqueId. The program must send it to the ranks that join. */
PITH_API pithResult_t pithCommGetUniqueId(pithComm_t comm, pithUniqueId* id);
/* Makes a communicator of the ranks of comm and of others that join: new processes, or some that
 * take the place of the dead after a shrink. Collective over all of its nranks ranks; nranks must
 * be more than comm has. comm stays usable and may be destroyed.
 *
 * Ranks of comm pass rank = -1 and keep their numbers. The coordinator passes its id; the others
 * pass NULL or the same id. The call counts as a collective on comm, as a split does. config NULL:
 * that of comm, with its timeout.
 * Ranks that join pass comm = NULL, the id, and a rank from comm's size to nranks - 1, each once.
 * In a group *newcomm is set as by pithCommInitRank. config NULL: the defaults.
 *
 * If the ranks disagree, a rank dies or one does not come, the call fails on all ranks. comm is not
 * revoked by that alone, and another attempt needs another id. Ranks of comm wait for each other
 * first, as in any collective, for PITH_TIMEOUT. From the first one that joins on, all must meet
 * within PITH_INIT_TIMEOUT (or PITH_JOIN_TIMEOUT, if that is longer), late ranks of comm too. The
 * ranks that join do not take over comm's timeout: give them the same config or environment.
 * If a rank of comm aborts it, or is interrupted here, comm is revoked and the call fails. */
PITH_API pithResult_t pithCommGrow(pithComm_t comm, int nranks, const pithUniqueId* id, int rank,
                                   pithComm_t* newcomm, pithConfig_t* config);
/* While a call of the calling thread waits, it calls check(context) about every 50 ms. If that
 * returns other than 0, the wait ends: the communicators of the call are revoked, or the creation
 * of a communicator is cancelled, and the call returns pithRemoteError. For programs that look at
 * signals. `check` may use any function of this API, except to wait for, destroy or abort what the
 * waiting call uses. check NULL: as before the first call. Does not reach creations in groups and
 * calls with blocking = 0, for which no thread waits. */
PITH_API pithResult_t pithSetInterrupt(int (*check)(void* context), void* context);
/* The state of the communicator: pithSuccess, pithInProgress while an operation started with
 * blocking = 0 runs, or the error that revoked it. While no call runs on this rank, the death of
 * another rank is reported too, although it does not revoke the communicator by itself. Does not
 * wait. */
PITH_API pithResult_t pithCommGetAsyncError(pithComm_t comm, pithResult_t* result);
/* The ranks whose process or host is gone, in ascending order. Ranks that are only stopped, were
 * left out of a shrink or have lost a link are not among them. *n: the capacity of `ranks` on
 * entry, the number of failed ranks on return. ranks NULL: only *n is written. */
PITH_API pithResult_t pithCommGetFailed(pithComm_t comm, int* ranks, int* n);
/* The number of the last call that all survivors of a shrink had completed; 0 if there is no such
 * call or no shrink. Collectives, barriers, splits and growths are counted from 1; Send and Recv
 * are not counted. Each call of a group counts, but compressed calls that are one exchange count as
 * one. Available on the old and the new communicator of the shrink. */
PITH_API pithResult_t pithCommGetLastCompleted(pithComm_t comm, uint64_t* call);
PITH_API pithResult_t pithCommCount(pithComm_t comm, int* count);
PITH_API pithResult_t pithCommUserRank(pithComm_t comm, int* rank);
/* The algorithm that a collective of `count` elements uses on comm; count means what it means in
 * the collective's own function. collective: its name in PITH_ALGO, as "allreduce". *algorithm: the
 * name in PITH_ALGO, as "ring"; a static string. For compressed calls see pithCompressorStats_t.
 * Does not wait. */
PITH_API pithResult_t pithCommGetAlgorithm(pithComm_t comm, const char* collective, size_t count,
                                           pithDataType_t type, const char** algorithm);

/* recv[i] = op over ranks of send[i]; the same bits on every rank. */
PITH_API pithResult_t pithAllReduce(const void* send, void* recv, size_t count, pithDataType_t type,
                                    pithRedOp_t op, pithComm_t comm, pithStream_t stream);
/* The same, but only the root's recv gets the result; recv is not used on other ranks. */
PITH_API pithResult_t pithReduce(const void* send, void* recv, size_t count, pithDataType_t type,
                                 pithRedOp_t op, int root, pithComm_t comm, pithStream_t stream);
/* send holds nranks * recvcount elements: rank r's recv = op over ranks of send + r * recvcount. */
PITH_API pithResult_t pithReduceScatter(const void* send, void* recv, size_t recvcount,
                                        pithDataType_t type, pithRedOp_t op, pithComm_t comm,
                                        pithStream_t stream);
/* recv[i] = op over ranks 0 to this one of send[i], in the order of the ranks. Not for pithAvg. */
PITH_API pithResult_t pithScan(const void* send, void* recv, size_t count, pithDataType_t type,
                               pithRedOp_t op, pithComm_t comm, pithStream_t stream);
/* The same without this rank's own send: over ranks 0 to this one - 1. There are none for rank 0,
 * whose recv is not used. */
PITH_API pithResult_t pithExScan(const void* send, void* recv, size_t count, pithDataType_t type,
                                 pithRedOp_t op, pithComm_t comm, pithStream_t stream);
/* recv = the root's send. send is not used on other ranks. */
PITH_API pithResult_t pithBroadcast(const void* send, void* recv, size_t count, pithDataType_t type,
                                    int root, pithComm_t comm, pithStream_t stream);
/* Broadcast in place. */
PITH_API pithResult_t pithBcast(void* buffer, size_t count, pithDataType_t type, int root,
                                pithComm_t comm, pithStream_t stream);
/* recv holds nranks * sendcount elements: rank r's send at recv + r * sendcount. */
PITH_API pithResult_t pithAllGather(const void* send, void* recv, size_t sendcount,
                                    pithDataType_t type, pithComm_t comm, pithStream_t stream);
/* Both buffers hold nranks * count elements: recv + r * count = rank r's send + rank * count. There
 * is no in-place form. */
PITH_API pithResult_t pithAlltoAll(const void* send, void* recv, size_t count, pithDataType_t type,
                                   pithComm_t comm, pithStream_t stream);
/* The same three with blocks of different sizes, which may be 0. A count array has an element for
 * each rank and is read before the call returns. A displs array says where each rank's block begins
 * in its buffer, counted in elements; NULL: behind the block of the rank before. The blocks of recv
 * must not overlap. In place as above, with the own block of the other buffer.
 *
 * pithAllGatherV: rank r's send, of recvcounts[r] elements, at recv + displs[r]. recvcounts must be
 * the same on all ranks, displs need not.
 * pithReduceScatterV: send holds the blocks one behind another, that of rank r has recvcounts[r]
 * elements: rank r's recv = op over ranks of it. recvcounts must be the same on all ranks.
 * pithAlltoAllV: rank r gets sendcounts[r] elements from send + sdispls[r], and its own come to
 * recv + rdispls[r]. Its sendcounts[this rank] must be recvcounts[r] here, else ranks get
 * pithInvalidUsage, at the latest from their next call; of the own block, pithInvalidArgument on
 * this rank alone. No rank knows all counts: the algorithm is that for blocks of 64 KiB. */
PITH_API pithResult_t pithAllGatherV(const void* send, void* recv, const size_t* recvcounts,
                                     const size_t* displs, pithDataType_t type, pithComm_t comm,
                                     pithStream_t stream);
PITH_API pithResult_t pithReduceScatterV(const void* send, void* recv, const size_t* recvcounts,
                                         pithDataType_t type, pithRedOp_t op, pithComm_t comm,
                                         pithStream_t stream);
PITH_API pithResult_t pithAlltoAllV(const void* send, const size_t* sendcounts,
                                    const size_t* sdispls, void* recv, const size_t* recvcounts,
                                    const size_t* rdispls, pithDataType_t type, pithComm_t comm,
                                    pithStream_t stream);
/* The root's recv holds nranks * sendcount elements: rank r's send at recv + r * sendcount. recv is
 * not used on other ranks. */
PITH_API pithResult_t pithGather(const void* send, void* recv, size_t sendcount,
                                 pithDataType_t type, int root, pithComm_t comm,
                                 pithStream_t stream);
/* The root's send holds nranks * recvcount elements: rank r's recv = send + r * recvcount. send is
 * not used on other ranks. */
PITH_API pithResult_t pithScatter(const void* send, void* recv, size_t recvcount,
                                  pithDataType_t type, int root, pithComm_t comm,
                                  pithStream_t stream);
/* Sends a message to rank `peer`, or receives one from it. The messages from one rank to another
 * are matched in the order of the calls, independently of the opposite direction and of all other
 * calls of the two ranks. Count and type must be the same at both ends, else the receiver gets
 * pithInvalidUsage. Send returns when the buffer may be changed; for a long message, or one behind
 * many that are not received yet, that is not before the matching Recv is called; for the first one
 * of ranks that connect on demand (PITH_CONNECT_RANKS), not before peer is in a call of comm. Calls
 * that wait for each other belong in one group, where all of them run at once; so do a Send and a
 * Recv of a rank to itself. A call with count 0 is a message, too, and must be matched. */
PITH_API pithResult_t pithSend(const void* send, size_t count, pithDataType_t type, int peer,
                               pithComm_t comm, pithStream_t stream);
PITH_API pithResult_t pithRecv(void* recv, size_t count, pithDataType_t type, int peer,
                               pithComm_t comm, pithStream_t stream);
/* Returns when every rank has called it. */
PITH_API pithResult_t pithBarrier(pithComm_t comm, pithStream_t stream);

/* Creates an operation that multiplies the inputs by the scalar and then sums them; product and sum
 * are each rounded to `type`. Local. The scalar may differ between ranks, but in a call all ranks
 * must use such an operation. It is valid for calls of this type on this communicator. A call keeps
 * what it needs, so the operation may be destroyed right after the call. */
PITH_API pithResult_t pithRedOpCreatePreMulSum(pithRedOp_t* op, void* scalar, pithDataType_t type,
                                               pithScalarResidence_t residence, pithComm_t comm);
PITH_API pithResult_t pithRedOpDestroy(pithRedOp_t op, pithComm_t comm);

/* Groups nest. Only the outermost pithGroupEnd starts the calls; it returns when all results are
 * there. None of them starts if one was refused; if a communicator cannot be made, the group fails,
 * but its calls are made, as other ranks take part in them. */
PITH_API pithResult_t pithGroupStart(void);
PITH_API pithResult_t pithGroupEnd(void);
/* Like pithGroupEnd, but the calls run in the background. Several groups may be in flight. */
PITH_API pithResult_t pithGroupEndAsync(pithRequest_t* request);
/* *done = 1: the return value is the group's result, and the request is freed. */
PITH_API pithResult_t pithTest(pithRequest_t request, int* done);
/* Waits, returns the group's result and frees the request. */
PITH_API pithResult_t pithWait(pithRequest_t request);

/* Memory, 64-byte aligned, that other ranks of this host access directly, so that reductions over
 * it copy nothing. It may be freed right after a call returns. pithMemFree accepts NULL. */
PITH_API pithResult_t pithMemAlloc(void** pointer, size_t bytes);
PITH_API pithResult_t pithMemFree(void* pointer);
/* Registers a buffer that many calls will use. Local; never required. Deregister accepts a NULL
 * handle. Registrations that are left end with the communicator. */
PITH_API pithResult_t pithCommRegister(pithComm_t comm, void* buffer, size_t bytes, void** handle);
PITH_API pithResult_t pithCommDeregister(pithComm_t comm, void* handle);

#ifdef __cplusplus
}
#endif

/* Compressed and sparse calls, and compressors. */
#include "compression.h"

#endif
