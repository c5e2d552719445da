/* What frameworks of training do with their process groups, in their order: on the stub driver,
 * given as the argument. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

enum { n = 1000 };

/* A stream gets no further until the word is set. */
static uint64_t* hold(struct client* me, void* stream) {
  uint64_t* const word = new_word(me);
  wait_for_word(me, stream, word, 1);
  return word;
}

static void wait_until_ready(struct client* me, ncclComm_t comm, ncclResult_t state) {
  while (state == ncclInProgress) {
    usleep(500);
    OK(ncclCommGetAsyncError(comm, &state));
  }
  CHECK(state == ncclSuccess);
}

/* Tensors without elements have no address, and the current stream is often NULL. */
static void empty_tensors(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  const int peer = 1 - me->rank;
  float *sent = floats_of(me, n, 1), *got = floats_of(me, n, 0);
  uint64_t* held = hold(me, NULL);
  for (int turn = 0; turn < 2; ++turn) {
    if (me->rank == turn) client_meet(me, turn); /* the other one has made its calls */
    OK(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, NULL));
    OK(ncclAllGather(NULL, NULL, 0, ncclFloat32, comm, NULL));
    OK(ncclGroupStart());
    OK(ncclSend(me->rank ? NULL : sent, me->rank ? 0 : n, ncclFloat32, peer, comm, NULL));
    OK(ncclRecv(me->rank ? got : NULL, me->rank ? n : 0, ncclFloat32, peer, comm, NULL));
    OK(ncclGroupEnd());
    if (me->rank != turn) client_meet(me, turn);
  }
  set_word(held, 1);
  CHECK(cuda.synchronize(NULL) == 0);
  if (me->rank == 1) {
    for (int i = 0; i < n; ++i) CHECK(got[i] == 1);
  }
  OK(ncclCommDestroy(comm));
}

static ncclConfig_t nonblocking_config(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 1;
  return config;
}

/* Eager: made in the background, with children for subgroups. */
static void eager(struct client* me) {
  use_device(me);
  void* const stream = new_stream(me);
  ncclConfig_t config = nonblocking_config();
  ncclComm_t comm = NULL, child = NULL, none = NULL;
  wait_until_ready(me, comm,
                   ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config) ==
                               ncclInProgress &&
                           comm
                       ? ncclInProgress
                       : ncclSystemError);
  ncclConfig_t same = nonblocking_config();
  const int member = me->rank < 2;
  wait_until_ready(me, comm,
                   ncclCommSplit(comm, member ? 7 : NCCL_SPLIT_NOCOLOR, me->rank, &child, &same));
  CHECK((child != NULL) == member);
  wait_until_ready(me, comm, ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, me->rank, &none, &same));
  CHECK(none == NULL);
  float* data = floats_of(me, n, 1);
  ncclRedOp_t half;
  const float factor = 0.5;
  OK(ncclGroupStart());
  OK(ncclRedOpCreatePreMulSum(&half, (void*)&factor, ncclFloat32, ncclScalarHostImmediate, comm));
  OK(ncclAllReduce(data, data, n, ncclFloat32, half, comm, stream));
  OK(ncclRedOpDestroy(half, comm));
  wait_until_ready(me, comm, ncclGroupEnd());
  if (child) {
    wait_until_ready(me, child, ncclInProgress);
    wait_until_ready(me, child, ncclAllReduce(data, data, n, ncclFloat32, ncclAvg, child, stream));
  }
  CHECK(cuda.synchronize(stream) == 0);
  for (int i = 0; i < n; ++i) CHECK(data[i] == 0.5f * (float)me->size);
  if (child) {
    wait_until_ready(me, child, ncclCommFinalize(child));
    wait_until_ready(me, child, ncclInProgress);
    OK(ncclCommDestroy(child));
  }
  wait_until_ready(me, comm, ncclCommFinalize(comm));
  wait_until_ready(me, comm, ncclInProgress);
  OK(ncclCommDestroy(comm));
}

/* A communicator made by the first message of a batch: its group is closed meanwhile. */
static void lazy_in_batch(struct client* me) {
  use_device(me);
  void* const stream = new_stream(me);
  float *sent = floats_of(me, n, (float)me->rank), *got = floats_of(me, n, -1);
  const int next = (me->rank + 1) % me->size, last = (me->rank + me->size - 1) % me->size;
  const ncclUniqueId id = client_id(me, 0);
  ncclComm_t comm = NULL;
  OK(ncclGroupStart());
  OK(ncclGroupStart());
  OK(ncclGroupEnd());
  OK(ncclGroupEnd());
  OK(ncclCommInitRank(&comm, me->size, id, me->rank));
  OK(ncclGroupStart());
  OK(ncclGroupStart());
  OK(ncclSend(sent, n, ncclFloat32, next, comm, stream));
  OK(ncclGroupEnd());
  OK(ncclGroupStart());
  OK(ncclRecv(got, n, ncclFloat32, last, comm, stream));
  OK(ncclGroupEnd());
  OK(ncclGroupEnd());
  CHECK(cuda.synchronize(stream) == 0);
  for (int i = 0; i < n; ++i) CHECK(got[i] == (float)last);
  OK(ncclCommDestroy(comm));
}

struct watched {
  struct client* me;
  ncclComm_t comms[2];
  volatile int over;
};

static void* watch(void* given) {
  struct watched* watched = given;
  struct client* me = watched->me;
  while (!watched->over) {
    for (int i = 0; i < 2; ++i) {
      ncclResult_t state;
      OK(ncclCommGetAsyncError(watched->comms[i], &state));
      CHECK(state == ncclSuccess || me->rank != 0); /* which rank 0 aborts first */
    }
  }
  OK(ncclGroupStart());
  for (int i = 0; i < 2; ++i) OK(ncclCommAbort(watched->comms[i]));
  OK(ncclGroupEnd());
  return NULL;
}

/* A watchdog looks on, and aborts what hangs: one stream waits for the other, which waits for a
 * rank that makes no more calls. */
static void watchdog(struct client* me) {
  use_device(me);
  struct watched watched = {me, {NULL, NULL}, 0};
  void* streams[2];
  float* data[2];
  for (int i = 0; i < 2; ++i) {
    OK(ncclCommInitRank(&watched.comms[i], me->size, client_id(me, i), me->rank));
    streams[i] = new_stream(me);
    data[i] = floats_of(me, n, 1);
  }
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, watch, &watched) == 0);
  for (int turn = 0; turn < 50; ++turn) {
    for (int i = 0; i < 2; ++i) {
      OK(ncclAllReduce(data[i], data[i], n, ncclFloat32, ncclMax, watched.comms[i], streams[i]));
    }
  }
  for (int i = 0; i < 2; ++i) CHECK(cuda.synchronize(streams[i]) == 0);
  if (me->rank == 0) {
    uint64_t* held = hold(me, streams[0]);
    OK(ncclAllReduce(data[0], data[0], n, ncclFloat32, ncclMax, watched.comms[0], streams[0]));
    OK(ncclAllReduce(data[1], data[1], n, ncclFloat32, ncclMax, watched.comms[1], streams[1]));
    watched.over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    set_word(held, 1);
    for (int i = 0; i < 2; ++i) CHECK(cuda.synchronize(streams[i]) == 0);
    client_meet(me, 0);
  } else {
    client_meet(me, 0);
    watched.over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
  }
}

/* Rank 0 has sent what it had to, and aborts at its end what it has not destroyed: others still
 * get it, and hear that it has left when they want more. */
static void last_message(struct client* me) {
  use_device(me);
  void* const stream = new_stream(me);
  ncclComm_t comm = client_join(me);
  float *data = floats_of(me, n, (float)(3 - me->rank)), *more = floats_of(me, n, 0);
  if (me->rank == 0) {
    OK(ncclSend(data, n, ncclFloat32, 1, comm, stream));
    CHECK(cuda.synchronize(stream) == 0);
    OK(ncclGroupStart());
    OK(ncclCommAbort(comm));
    OK(ncclGroupEnd());
    client_meet(me, 0);
    client_meet(me, 1);
    return;
  }
  client_meet(me, 0);
  usleep(300 * 1000); /* for news of what rank 0 did */
  ncclResult_t state = ncclInternalError;
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess);
  OK(ncclRecv(data, n, ncclFloat32, 0, comm, stream));
  CHECK(cuda.synchronize(stream) == 0);
  for (int i = 0; i < n; ++i) CHECK(data[i] == 3);
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess);
  OK(ncclRecv(more, n, ncclFloat32, 0, comm, stream));
  for (int waits = 0; state == ncclSuccess && waits < 500; ++waits) {
    usleep(10 * 1000);
    OK(ncclCommGetAsyncError(comm, &state));
  }
  CHECK(state == ncclRemoteError);
  OK(ncclCommAbort(comm));
  CHECK(cuda.synchronize(stream) == 0);
  client_meet(me, 1);
}

/* Pools of memory grow while a thread captures, in the mode that forbids the most. */
static void pool_in_capture(struct client* me) {
  use_device(me);
  void* const stream = new_stream(me);
  void *graph = NULL, *before = NULL, *memory = NULL;
  OK(ncclMemAlloc(&before, n));
  const int global = 0;
  CHECK(cuda.begin_capture(stream, global) == 0);
  OK(ncclMemAlloc(&memory, n));
  OK(ncclMemFree(before));
  CHECK(cuda.end_capture(stream, &graph) == 0);
  OK(ncclMemFree(memory));
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  driver_path = arguments[1];
  client_run("eager", 3, NULL, eager);
  client_run("lazy in a batch", 3, NULL, lazy_in_batch);
  client_run("watchdog", 2, NULL, watchdog);
  client_run("empty tensors", 2, NULL, empty_tensors);
  client_run("last message", 2, NULL, last_message);
  client_run("pool in a capture", 1, NULL, pool_in_capture);
  return 0;
}
