/* Every call that moves data, in NCCL's words: results, in place, one rank, refused arguments. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

enum { n = 1000 };

static float value(int rank, int i) { return (float)(rank + 1) * (float)(i % 7 - 3); }

static float sum_of(int size, int i) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += value(r, i);
  return sum;
}

static void fill(float* out, int rank, int count) {
  for (int i = 0; i < count; ++i) out[i] = value(rank, i);
}

static void reductions(struct client* me) {
  ncclComm_t comm = client_join(me);
  const int root = me->size - 1;
  float send[n], recv[n];
  fill(send, me->rank, n);
  OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, NULL));
  for (int i = 0; i < n; ++i) CHECK(recv[i] == sum_of(me->size, i));
  OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclAvg, comm, NULL));
  for (int i = 0; i < n; ++i) CHECK(fabsf(recv[i] - sum_of(me->size, i) / (float)me->size) < 1e-4f);
  OK(ncclAllReduce(send, send, n, ncclFloat32, ncclMax, comm, NULL)); /* in place */
  for (int i = 0; i < n; ++i) {
    const float high = value(me->size - 1, i), low = value(0, i);
    CHECK(send[i] == (high > low ? high : low));
  }
  fill(send, me->rank, n);
  /* off root recv may be NULL */
  OK(ncclReduce(send, me->rank == root ? recv : NULL, n, ncclFloat32, ncclSum, root, comm, NULL));
  for (int i = 0; me->rank == root && i < n; ++i) CHECK(recv[i] == sum_of(me->size, i));
  int64_t whole = me->rank - 7, least = 0;
  OK(ncclAllReduce(&whole, &least, 1, ncclInt64, ncclMin, comm, NULL));
  CHECK(least == -7);
  uint8_t byte = 200, bytes = 0;
  OK(ncclAllReduce(&byte, &bytes, 1, ncclUint8, ncclSum, comm, NULL));
  CHECK(bytes == (uint8_t)(200 * me->size));
  OK(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, NULL));
  OK(ncclCommDestroy(comm));
}

static void scaled_sums(struct client* me) {
  ncclComm_t comm = client_join(me);
  float half = 0.5f, send[4] = {2, 4, 6, 8}, recv[4];
  ncclRedOp_t op;
  OK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, comm));
  half = 100;
  OK(ncclAllReduce(send, recv, 4, ncclFloat32, op, comm, NULL));
  for (int i = 0; i < 4; ++i) CHECK(recv[i] == send[i] / 2 * (float)me->size);
  int whole = 1;
  FAILS(ncclInvalidArgument, ncclAllReduce(&whole, &whole, 1, ncclInt32, op, comm, NULL));
  /* Pith has types with these numbers, NCCL has none. */
  const ncclDataType_t none = ncclNumTypes;
  FAILS(ncclInvalidArgument, ncclAllReduce(send, recv, 1, none, ncclSum, comm, NULL));
  FAILS(ncclInvalidArgument, ncclSend(send, 1, none + 1, 0, comm, NULL));
  FAILS(ncclInvalidArgument,
        ncclRedOpCreatePreMulSum(&op, send, none, ncclScalarHostImmediate, comm));
  OK(ncclRedOpDestroy(op, comm));
  FAILS(ncclInvalidArgument, ncclRedOpDestroy(op, comm));
  FAILS(ncclInvalidArgument, ncclRedOpDestroy(ncclSum, comm));
  FAILS(ncclInvalidArgument, ncclAllReduce(send, recv, 4, ncclFloat32, op, comm, NULL));
  OK(ncclCommDestroy(comm));
}

static void moves(struct client* me) {
  ncclComm_t comm = client_join(me);
  const int p = me->size, root = p / 2;
  const size_t all = (size_t)(p * n);
  float* send = malloc(all * sizeof *send);
  float* recv = malloc(all * sizeof *recv);
  float one[n];
  fill(one, me->rank, n);
  memset(recv, 0, all * sizeof *recv);
  OK(ncclAllGather(one, recv, n, ncclFloat32, comm, NULL));
  for (int r = 0; r < p; ++r)
    for (int i = 0; i < n; ++i) CHECK(recv[r * n + i] == value(r, i));
  memcpy(recv + me->rank * n, one, sizeof one); /* in place */
  OK(ncclAllGather(recv + me->rank * n, recv, n, ncclFloat32, comm, NULL));
  for (int r = 0; r < p; ++r) CHECK(recv[r * n + 1] == value(r, 1));

  for (int r = 0; r < p; ++r) fill(send + r * n, me->rank, n);
  OK(ncclReduceScatter(send, one, n, ncclFloat32, ncclSum, comm, NULL));
  for (int i = 0; i < n; ++i) CHECK(one[i] == sum_of(p, i));
  for (int r = 0; r < p; ++r)
    for (int i = 0; i < n; ++i) send[r * n + i] = (float)(me->rank * 100 + r);
  OK(ncclAlltoAll(send, recv, n, ncclFloat32, comm, NULL));
  for (int r = 0; r < p; ++r) CHECK(recv[r * n + n - 1] == (float)(r * 100 + me->rank));
  /* In place the result is anybody's guess, as in NCCL, but nccl-tests times it so. One rank may.
   */
  OK(ncclAlltoAll(recv, recv, n, ncclFloat32, comm, NULL));
  OK(ncclAlltoAll(me->rank == 0 ? recv : send, recv, n, ncclFloat32, comm, NULL));
  for (int r = 1; r < p && me->rank != 0; ++r) {
    CHECK(recv[r * n + n - 1] == (float)(r * 100 + me->rank));
  }

  fill(one, me->rank, n);
  OK(ncclGather(one, me->rank == root ? recv : NULL, n, ncclFloat32, root, comm, NULL));
  for (int r = 0; me->rank == root && r < p; ++r) CHECK(recv[r * n + 2] == value(r, 2));
  OK(ncclScatter(me->rank == root ? recv : NULL, send, n, ncclFloat32, root, comm, NULL));
  for (int i = 0; i < n; ++i) CHECK(send[i] == value(me->rank, i));
  OK(ncclBroadcast(one, recv, n, ncclFloat32, root, comm, NULL));
  for (int i = 0; i < n; ++i) CHECK(recv[i] == value(root, i));
  OK(ncclBcast(one, n, ncclFloat32, root, comm, NULL));
  for (int i = 0; i < n; ++i) CHECK(one[i] == value(root, i));
  free(send);
  free(recv);
  OK(ncclCommDestroy(comm));
}

static void messages(struct client* me) {
  ncclComm_t comm = client_join(me);
  const int next = (me->rank + 1) % me->size, before = (me->rank + me->size - 1) % me->size;
  int out = me->rank, in = -1, self_out = 42, self_in = 0;
  OK(ncclGroupStart());
  OK(ncclSend(&out, 1, ncclInt32, next, comm, NULL));
  OK(ncclRecv(&in, 1, ncclInt32, before, comm, NULL));
  OK(ncclSend(&self_out, 1, ncclInt32, me->rank, comm, NULL)); /* to itself */
  OK(ncclRecv(&self_in, 1, ncclInt32, me->rank, comm, NULL));
  OK(ncclSend(NULL, 0, ncclInt32, next, comm, NULL)); /* nothing is a message, too */
  OK(ncclRecv(NULL, 0, ncclInt32, before, comm, NULL));
  OK(ncclGroupEnd());
  CHECK(in == before && self_in == 42);
  FAILS(ncclInvalidUsage, ncclSend(&out, 1, ncclInt32, me->rank, comm, NULL)); /* no receive */
  OK(ncclCommDestroy(comm));
}

/* It waits for its send, though nothing comes. */
static void empty_messages(struct client* me) {
  enum { called = 0, times = 3 };
  ncclComm_t comm = client_join(me);
  for (int i = 1; i <= times; ++i) {
    if (me->rank == 1) {
      usleep(30 * 1000);
      me->shared->note[1][called] = i;
      OK(ncclSend(NULL, 0, ncclInt32, 0, comm, NULL));
    } else {
      OK(ncclRecv(NULL, 0, ncclInt32, 1, comm, NULL));
      CHECK(me->shared->note[1][called] >= i);
    }
  }
  OK(ncclCommDestroy(comm));
}

static ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
    usleep(100);
  }
  return state;
}

static void every_collective_of_nothing(struct client* me, ncclComm_t comm, cudaStream_t stream) {
  OK(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, stream));
  OK(ncclBroadcast(NULL, NULL, 0, ncclFloat32, 0, comm, stream));
  OK(ncclBcast(NULL, 0, ncclFloat32, 0, comm, stream));
  OK(ncclReduce(NULL, NULL, 0, ncclFloat32, ncclMax, 0, comm, stream));
  OK(ncclAllGather(NULL, NULL, 0, ncclFloat32, comm, stream));
  OK(ncclReduceScatter(NULL, NULL, 0, ncclFloat32, ncclAvg, comm, stream));
  OK(ncclAlltoAll(NULL, NULL, 0, ncclFloat32, comm, stream));
  OK(ncclGather(NULL, NULL, 0, ncclFloat32, 0, comm, stream));
  OK(ncclScatter(NULL, NULL, 0, ncclFloat32, 0, comm, stream));
}

/* A collective of nothing is none, so that one rank may make it alone: in a group, on a stream,
 * wherever other calls would have gone. */
static void nothing(struct client* me) {
  ncclComm_t comm = NULL;
  const ncclResult_t made = ncclCommInitRank(&comm, me->size, client_id(me, 0), me->rank);
  CHECK(made == ncclSuccess || made == ncclInProgress);
  CHECK(settled(comm) == ncclSuccess);
  float two = 2, sum = 0;
  ncclRedOp_t op;
  cudaStream_t stream = (cudaStream_t)(uintptr_t)0x1000; /* of no driver: nobody looks at it */
  OK(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat32, ncclScalarHostImmediate, comm));
  for (int turn = 0; turn < 3; ++turn) {
    const int mine = me->rank == turn % me->size;
    if (mine) every_collective_of_nothing(me, comm, turn == 1 ? stream : NULL);
    if (mine) OK(ncclAllReduce(NULL, NULL, 0, ncclInt32, op, comm, NULL)); /* of another type */
    if (mine) OK(ncclGroupStart());
    if (mine) every_collective_of_nothing(me, comm, NULL);
    const ncclResult_t begun = ncclAllReduce(&two, &sum, 1, ncclFloat32, ncclSum, comm, NULL);
    CHECK(begun == ncclSuccess || begun == ncclInProgress);
    if (mine) every_collective_of_nothing(me, comm, stream);
    const ncclResult_t ended = mine ? ncclGroupEnd() : ncclSuccess;
    CHECK(ended == ncclSuccess || ended == ncclInProgress);
    CHECK(settled(comm) == ncclSuccess && sum == 2 * (float)me->size);
  }
  if (me->rank == 0) { /* a group of nothing else, and one of which nothing comes */
    OK(ncclGroupStart());
    every_collective_of_nothing(me, comm, NULL);
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    FAILS(ncclInvalidArgument, ncclBcast(NULL, 0, ncclFloat32, me->size, comm, NULL));
    CHECK(strstr(ncclGetLastError(NULL), "ncclBcast: root is ") != NULL);
    FAILS(ncclInvalidArgument, ncclGroupEnd());
  }
  client_meet(me, 0);
  OK(ncclCommRevoke(comm, 0));
  FAILS(ncclInvalidUsage, ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, NULL));
  OK(ncclCommDestroy(comm));
  FAILS(ncclInvalidArgument, ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, NULL));
  FAILS(ncclInvalidArgument, ncclAllGather(NULL, NULL, 0, ncclFloat32, NULL, NULL));
}

/* Its memory begins with a page, however little it is. */
static void pages(struct client* me) {
  enum { several = 8, page = 4096 };
  const size_t bytes[several] = {1, 100, 64, 0, page - 1, page + 1, 1, (size_t)5 << 20};
  void* memory[several];
  for (int i = 0; i < several; ++i) {
    OK(ncclMemAlloc(&memory[i], bytes[i]));
    CHECK((uintptr_t)memory[i] % page == 0);
    memset(memory[i], i, bytes[i]);
  }
  for (int i = 0; i < several; ++i) OK(ncclMemFree(memory[i]));
  void* none = &none;
  FAILS(ncclSystemError, ncclMemAlloc(&none, SIZE_MAX));
  FAILS(ncclSystemError, ncclMemAlloc(&none, SIZE_MAX - page));
  CHECK(none == (void*)&none);
}

static void memory(struct client* me) {
  ncclComm_t comm = client_join(me);
  float* buffer = NULL;
  void* handle = NULL;
  ncclWindow_t window = NULL;
  OK(ncclMemAlloc((void**)&buffer, n * sizeof *buffer));
  OK(ncclCommRegister(comm, buffer, n * sizeof *buffer, &handle));
  OK(ncclCommWindowRegister(comm, buffer, n * sizeof *buffer, &window, NCCL_WIN_DEFAULT));
  fill(buffer, me->rank, n);
  OK(ncclAllReduce(buffer, buffer, n, ncclFloat32, ncclSum, comm, NULL));
  for (int i = 0; i < n; ++i) CHECK(buffer[i] == sum_of(me->size, i));
  FAILS(ncclInvalidUsage, ncclDevCommCreate(comm, NULL, NULL));
#ifdef CLIENT_KNOWS_229
  void* pointer = NULL;
  uint64_t bytes = 0;
  OK(ncclWinGetUserPtr(comm, window, &pointer));
  CHECK(pointer == buffer);
  OK(ncclGetPeerDevicePointer(window, 0, (me->rank + 1) % me->size, &pointer));
  CHECK(me->size == 1 ? pointer == buffer : pointer == NULL);
  FAILS(ncclInvalidUsage, ncclCommSuspend(comm, 1));
  FAILS(ncclInvalidUsage, ncclCommResume(comm));
  FAILS(ncclInvalidUsage, ncclCommMemStats(comm, ncclStatGpuMemSuspend, &bytes));
  FAILS(ncclInvalidArgument, ncclCommSuspend(NULL, 1));
#endif
  OK(ncclCommWindowDeregister(comm, window));
  FAILS(ncclInvalidArgument, ncclCommWindowDeregister(comm, window));
  OK(ncclCommWindowDeregister(comm, NULL));
  OK(ncclCommDeregister(comm, handle));
  OK(ncclCommDeregister(comm, NULL));
  OK(ncclMemFree(buffer));
  OK(ncclMemFree(NULL));
  OK(ncclCommDestroy(comm));
}

/* As in NCCL since 2.29 where there is none: no error and no window, with which all goes on. */
static void symmetric_memory(struct client* me) {
  ncclComm_t comm = client_join(me);
  float buffer[n];
  ncclWindow_t window = (ncclWindow_t)buffer;
  const int symmetric = NCCL_WIN_COLL_SYMMETRIC;
  OK(ncclCommWindowRegister(comm, buffer, sizeof buffer, &window, symmetric));
  CHECK(window == NULL);
  fill(buffer, me->rank, n);
  OK(ncclAllReduce(buffer, buffer, n, ncclFloat32, ncclSum, comm, NULL));
  for (int i = 0; i < n; ++i) CHECK(buffer[i] == sum_of(me->size, i));
  FAILS(ncclInvalidUsage, ncclDevCommCreate(comm, NULL, NULL));
#ifdef CLIENT_KNOWS_229
  void* pointer = buffer;
  OK(ncclWinGetUserPtr(comm, window, &pointer));
  CHECK(pointer == NULL);
  FAILS(ncclInvalidArgument, ncclWinGetUserPtr(comm, window, NULL));
  FAILS(ncclInvalidArgument, ncclGetPeerDevicePointer(window, 0, me->rank, &pointer));
  FAILS(ncclInvalidArgument, ncclGetLsaDevicePointer(window, 0, 0, &pointer));
  FAILS(ncclInvalidUsage, ncclPutSignal(buffer, 1, ncclFloat32, 0, window, 0, 0, 0, 0, comm, NULL));
#endif
  OK(ncclCommWindowDeregister(comm, window));
  FAILS(ncclInvalidArgument, ncclCommWindowRegister(comm, NULL, 1, &window, symmetric));
  FAILS(ncclInvalidArgument, ncclCommWindowRegister(comm, buffer, 1, NULL, symmetric));
  OK(ncclCommDestroy(comm));
}

static void refusals(struct client* me) {
  ncclComm_t comm = client_join(me);
  float one = 1, two = 0;
  int32_t bits = 1;
  FAILS(ncclInvalidArgument, ncclAllReduce(&one, &two, 1, (ncclDataType_t)12, ncclSum, comm, NULL));
  FAILS(ncclInvalidArgument, ncclAllReduce(&one, &two, 0, (ncclDataType_t)12, ncclSum, comm, NULL));
  FAILS(ncclInvalidArgument,
        ncclAllReduce(&one, &two, 1, ncclFloat32, (ncclRedOp_t)77, comm, NULL));
  FAILS(ncclInvalidArgument,
        ncclAllReduce(&one, &two, 0, ncclFloat32, (ncclRedOp_t)77, comm, NULL));
  /* Pith gives these numbers to operations on bits, NCCL to none. */
  for (int op = ncclNumOps; op <= 10; ++op) {
    FAILS(ncclInvalidArgument,
          ncclAllReduce(&bits, &bits, 1, ncclInt32, (ncclRedOp_t)op, comm, NULL));
    FAILS(ncclInvalidArgument,
          ncclAllReduce(&bits, &bits, 0, ncclInt32, (ncclRedOp_t)op, comm, NULL));
    FAILS(ncclInvalidArgument,
          ncclReduce(&bits, &bits, 1, ncclInt32, (ncclRedOp_t)op, 0, comm, NULL));
    FAILS(ncclInvalidArgument,
          ncclReduceScatter(&bits, &bits, 1, ncclInt32, (ncclRedOp_t)op, comm, NULL));
  }
  FAILS(ncclInvalidArgument, ncclBroadcast(&one, &two, 1, ncclFloat32, me->size, comm, NULL));
  FAILS(ncclInvalidArgument, ncclBroadcast(&one, &two, 0, ncclFloat32, me->size, comm, NULL));
  FAILS(ncclInvalidArgument, ncclSend(&one, 0, ncclFloat32, me->size, comm, NULL));
  FAILS(ncclInvalidArgument, ncclAllReduce(NULL, &two, 1, ncclFloat32, ncclSum, comm, NULL));
  CHECK(strstr(ncclGetLastError(NULL), "ncclAllReduce: send is NULL") != NULL);
  cudaStream_t stream = (cudaStream_t)(uintptr_t)0x1000; /* and there is no driver */
  FAILS(ncclInvalidArgument, ncclAllReduce(&one, &two, 1, ncclFloat32, ncclSum, comm, stream));
  OK(ncclAllReduce(&one, &two, 1, ncclFloat32, ncclSum, comm, NULL)); /* nothing was sent */
  CHECK(two == (float)me->size);
  OK(ncclCommDestroy(comm));
}

int main(void) {
  const int sizes[] = {1, 2, 5, 8};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    client_run("reductions", sizes[i], NULL, reductions);
    client_run("moves", sizes[i], NULL, moves);
  }
  client_run("scaled sums", 1, NULL, scaled_sums);
  client_run("scaled sums", 3, NULL, scaled_sums);
  client_run("messages", 1, NULL, messages);
  client_run("messages", 4, NULL, messages);
  client_run("empty messages", 2, NULL, empty_messages);
  const char* on_host[] = {"CUDA_VISIBLE_DEVICES=", NULL}; /* or it would be a device's */
  client_run("memory", 1, on_host, memory);
  client_run("memory", 3, on_host, memory);
  client_run("symmetric memory", 1, NULL, symmetric_memory);
  client_run("symmetric memory", 3, NULL, symmetric_memory);
  client_run("pages", 1, on_host, pages);
  client_run("refusals", 2, NULL, refusals);
  client_run("nothing", 1, NULL, nothing);
  client_run("nothing", 3, NULL, nothing);
  const char* compressed[] = {"PITH_COMPRESS=topk:density=0.5,bypass=never,min=1", NULL};
  client_run("nothing, compressed", 3, compressed, nothing);
  const char* no_blocking[] = {"NCCL_COMM_BLOCKING=0", NULL};
  client_run("nothing, blocking = 0", 3, no_blocking, nothing);
  return 0;
}
