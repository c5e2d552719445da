/* Another libnccl.so.2, of which tests can see that a call came to it: results are its marks. Calls
 * of what ncclCommSplit has made do what they should, for float32, when their stream gets there,
 * and wait for the other ranks until they are aborted, as the kernels of NVIDIA's do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nccl/abi.h"

#define EXPORTED __attribute__((visibility("default")))

enum { version = 99999, mark = 0x5a, scaled_op = 1000 };
enum { failing_count = 13, failing_at_end_count = 14 }; /* of its group: as NVIDIA's may */
enum { splits_max = 4, colors_max = 4, ranks_max = 4, elements_max = 50000 };

/* Of the ranks of one split that have one color, zero at first. */
struct meeting {
  int arrived, members;
  float data[ranks_max][elements_max];
};
struct shared {
  int arrived[splits_max];
  struct meeting of[splits_max][colors_max];
};

struct ncclComm {
  int rank, size;
  ncclResult_t state;
  struct meeting* meeting; /* NULL: calls leave marks */
  int meetings;            /* so far */
  int running;
  int aborted;
};

static __thread int depth;
static __thread ncclResult_t ended; /* of the group */

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

static int value_of(const int* variable) { return __atomic_load_n(variable, __ATOMIC_ACQUIRE); }
static void nap(void) { usleep(50); }

EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  while (value_of(&comm->running) > 0) nap();
  free(comm);
  return ncclSuccess;
}
/* As NVIDIA's may, it waits for the whole device, and so for kernels of others that are not
 * aborted; in a group at its end. */
static __thread ncclComm_t given_up[splits_max + 1];
static __thread int given_up_count;
static ncclResult_t end_given_up(void) {
  int (*synchronize)(void) = NULL;
  *(void**)&synchronize = dlsym(RTLD_DEFAULT, "cuCtxSynchronize");
  if (given_up_count > 0 && synchronize) synchronize();
  while (given_up_count > 0) ncclCommDestroy(given_up[--given_up_count]);
  return ncclSuccess;
}
EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (given_up_count > splits_max) return ncclInternalError;
  __atomic_store_n(&comm->aborted, 1, __ATOMIC_RELEASE);
  given_up[given_up_count++] = comm;
  return depth > 0 ? ncclSuccess : end_given_up();
}

static struct shared* shared_by_job(void) {
  const char* const path = getenv("FAKE_NCCL_SHARED");
  const int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
  if (file < 0 || ftruncate(file, sizeof(struct shared)) != 0) return NULL;
  void* const memory =
      mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? NULL : memory;
}

/* The keys of one color are 0, 1, ... */
EXPORTED ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                                    ncclConfig_t* config) {
  static int splits; /* the same number at all ranks */
  struct shared* const shared = shared_by_job();
  const int number = splits++;
  (void)config;
  if (!shared || number >= splits_max || color >= colors_max) return ncclSystemError;
  struct meeting* const meeting = &shared->of[number][color];
  __atomic_add_fetch(&meeting->members, 1, __ATOMIC_ACQ_REL);
  __atomic_add_fetch(&shared->arrived[number], 1, __ATOMIC_ACQ_REL);
  while (value_of(&shared->arrived[number]) < comm->size) nap();
  *made = calloc(1, sizeof **made);
  (*made)->rank = key;
  (*made)->size = value_of(&meeting->members);
  (*made)->meeting = meeting;
  return ncclSuccess;
}
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
EXPORTED ncclResult_t ncclGroupEnd(void) {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return ncclSuccess;
  const ncclResult_t result = ended;
  ended = ncclSuccess;
  end_given_up();
  return result;
}

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

enum kind { reduce_scatter, all_gather, reduce, broadcast, kinds };
struct step {
  enum kind kind;
  ncclComm_t comm;
  const float* send;
  float* recv;
  size_t count;
  int root;
};

static int issued[kinds];
/* How often this process has made such a call of a split's, in the order of `kind`. */
EXPORTED int fake_nccl_issued(int kind) { return value_of(&issued[kind]); }

static int meet(ncclComm_t comm) {
  const int all = ++comm->meetings * comm->size;
  __atomic_add_fetch(&comm->meeting->arrived, 1, __ATOMIC_ACQ_REL);
  while (value_of(&comm->meeting->arrived) < all) {
    if (value_of(&comm->aborted)) return 0;
    nap();
  }
  return 1;
}

static void sum(const struct step* step, size_t begin) {
  const struct meeting* const meeting = step->comm->meeting;
  for (size_t i = 0; i < step->count; ++i) {
    float total = 0;
    for (int r = 0; r < step->comm->size; ++r) total += meeting->data[r][begin + i];
    step->recv[i] = total;
  }
}

static void take(const struct step* step) {
  const struct meeting* const meeting = step->comm->meeting;
  const size_t bytes = step->count * sizeof(float);
  if (step->kind == reduce_scatter) sum(step, (size_t)step->comm->rank * step->count);
  if (step->kind == reduce && step->comm->rank == step->root) sum(step, 0);
  if (step->kind == broadcast) memcpy(step->recv, meeting->data[step->root], bytes);
  if (step->kind != all_gather) return;
  for (int r = 0; r < step->comm->size; ++r) {
    memcpy(step->recv + (size_t)r * step->count, meeting->data[r], bytes);
  }
}

/* FAKE_NCCL_ENDS_AFTER: the reduce-scatter with which the process ends. */
static void end_there(const struct step* step) {
  static int done;
  const char* const last = getenv("FAKE_NCCL_ENDS_AFTER");
  if (step->kind == reduce_scatter && last && ++done == atoi(last)) _exit(0);
}

static void run(void* argument) {
  struct step* const step = argument;
  ncclComm_t const comm = step->comm;
  const size_t blocks = step->kind == reduce_scatter ? (size_t)comm->size : 1;
  memcpy(comm->meeting->data[comm->rank], step->send, blocks * step->count * sizeof(float));
  if (meet(comm)) {
    take(step);
    meet(comm);
    end_there(step);
  }
  free(step);
  __atomic_sub_fetch(&comm->running, 1, __ATOMIC_ACQ_REL);
}

static int enqueue_host_function(cudaStream_t stream, void (*function)(void*), void* argument) {
  int (*launch)(void*, void (*)(void*), void*) = NULL;
  *(void**)&launch = dlsym(RTLD_DEFAULT, "cuLaunchHostFunc");
  return launch ? launch(stream, function, argument) : -1;
}

/* FAKE_NCCL_STUCK: broadcasts of the twin that wait until they are aborted. */
static void wait_for_abort(void* argument) {
  ncclComm_t const comm = argument;
  while (!value_of(&comm->aborted)) nap();
  __atomic_sub_fetch(&comm->running, 1, __ATOMIC_ACQ_REL);
}
static ncclResult_t get_stuck(ncclComm_t comm, cudaStream_t stream) {
  __atomic_add_fetch(&comm->running, 1, __ATOMIC_ACQ_REL);
  return enqueue_host_function(stream, wait_for_abort, comm) == 0 ? ncclSuccess
                                                                  : ncclUnhandledCudaError;
}

static ncclResult_t enqueue(enum kind kind, const void* send, void* recv, size_t count,
                            ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream) {
  const size_t blocks = kind == reduce_scatter ? (size_t)comm->size : 1;
  if (depth == 0) return ncclInvalidUsage;
  if (getenv("FAKE_NCCL_REFUSES")) return ncclSystemError;
  if (type != ncclFloat32 || blocks * count > elements_max) return ncclInvalidArgument;
  struct step* const step = malloc(sizeof *step);
  *step = (struct step){kind, comm, send, recv, count, root};
  __atomic_add_fetch(&issued[kind], 1, __ATOMIC_ACQ_REL);
  __atomic_add_fetch(&comm->running, 1, __ATOMIC_ACQ_REL);
  return enqueue_host_function(stream, run, step) == 0 ? ncclSuccess : ncclUnhandledCudaError;
}

/* Bytes of `what`: the mark, or the operation where that is one of ours. */
static ncclResult_t leave(void* recv, size_t count, int what, ncclComm_t comm) {
  if (depth == 0 || comm == NULL) return ncclInvalidUsage;
  if (count == failing_count) {
    comm->state = ncclSystemError;
    return ncclSystemError;
  }
  if (count == failing_at_end_count) ended = ncclSystemError;
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
  if (comm && comm->meeting) return enqueue(broadcast, send, recv, count, type, root, comm, stream);
  if (comm && getenv("FAKE_NCCL_STUCK")) return get_stuck(comm, stream);
  return leave(recv, count, mark, comm);
}
EXPORTED ncclResult_t ncclReduce(const void* send, void* recv, size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  (void)op;
  if (comm && comm->meeting) return enqueue(reduce, send, recv, count, type, root, comm, stream);
  return leave(recv, count, mark, comm);
}

EXPORTED ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type,
                                    ncclComm_t comm, cudaStream_t stream) {
  if (comm && comm->meeting) return enqueue(all_gather, send, recv, count, type, 0, comm, stream);
  return leave(recv, count, mark, comm);
}
EXPORTED ncclResult_t ncclReduceScatter(const void* send, void* recv, size_t count,
                                        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                        cudaStream_t stream) {
  (void)op;
  if (comm && comm->meeting) {
    return enqueue(reduce_scatter, send, recv, count, type, 0, comm, stream);
  }
  return ncclAllGather(send, recv, count, type, comm, stream);
}

#ifndef BEFORE_2_28
EXPORTED ncclResult_t ncclAlltoAll(const void* send, void* recv, size_t count, ncclDataType_t type,
                                   ncclComm_t comm, cudaStream_t stream) {
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
#endif

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
