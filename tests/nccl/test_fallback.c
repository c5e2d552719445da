/* Calls that go to another NCCL: the fake, given as the first argument; the second one is ours.
 * What goes there is device memory, of the stub driver, the third one: the host may look into that.
 */
#include <string.h>
#include <unistd.h>

#include "driver.h"

enum { n = 64, mark = 0x5a };

static unsigned char* device_bytes(struct client* me, size_t bytes) {
  void* memory = NULL;
  OK(ncclMemAlloc(&memory, bytes));
  memset(memory, 0, bytes);
  return memory;
}

/* What Pith serves is there when the stream is. */
static void wait_for_stream(struct client* me) {
  void* const legacy = (void*)1;
  CHECK(cuda.synchronize(legacy) == 0);
}

static int all_are(const void* memory, size_t bytes, int what) {
  const unsigned char* at = memory;
  for (size_t i = 0; i < bytes; ++i) {
    if (at[i] != what) return 0;
  }
  return 1;
}

static void some_kinds(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  unsigned char *send = device_bytes(me, n), *recv = device_bytes(me, 8 * n);
  int version = 0;
  OK(ncclGetVersion(&version));
  CHECK(version == NCCL_VERSION_CODE);
  memset(send, 1, n);
  OK(ncclBroadcast(send, recv, n, ncclUint8, 0, comm, NULL));
  CHECK(all_are(recv, n, mark));
  memset(recv, 0, n);
  if (me->rank == 1) OK(ncclBcast(recv, 0, ncclUint8, 0, comm, NULL)); /* nothing is no call */
  if (me->rank == 1) OK(ncclAllReduce(send, recv, 0, ncclUint8, ncclSum, comm, NULL));
  OK(ncclBcast(recv, n, ncclUint8, 0, comm, NULL)); /* its twin */
  CHECK(all_are(recv, n, mark));
  OK(ncclAllReduce(send, recv, n, ncclUint8, ncclSum, comm, NULL)); /* not on the list */
  wait_for_stream(me);
  CHECK(all_are(recv, n, me->size));
  /* Of both kinds in one group */
  memset(recv, 0, 8 * n);
  unsigned char* const sum = device_bytes(me, n);
  OK(ncclGroupStart());
  OK(ncclAllGather(send, recv, n, ncclUint8, comm, NULL));
  FAILS(ncclInvalidUsage, ncclCommDestroy(comm)); /* nor is it lost there */
  OK(ncclAllReduce(send, sum, n, ncclUint8, ncclSum, comm, NULL));
  FAILS(ncclInvalidUsage, ncclCommFinalize(comm));
  OK(ncclGroupEnd());
  wait_for_stream(me);
  CHECK(all_are(recv, n, mark) && all_are(recv + n, n, 0) && all_are(sum, n, me->size));
  ncclResult_t state = ncclInternalError;
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess);
  client_meet(me, 0); /* the fake waits for nobody, and here comes an abort */
  FAILS(ncclSystemError, ncclBroadcast(send, recv, 13, ncclUint8, 0, comm, NULL));
  CHECK(strcmp(ncclGetLastError(NULL), "the fake's message") == 0);
  FAILS(ncclSystemError, ncclBroadcast(send, recv, 14, ncclUint8, 0, comm, NULL));
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSystemError);
  client_meet(me, 1);
  OK(ncclCommAbort(comm));
}

static int has_newer = 1; /* whether the other library has what came with NCCL 2.28 */
static void every_kind(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  float half = 7;
  unsigned char *recv = device_bytes(me, n), *send = device_bytes(me, n);
  memset(send, 1, n);
  ncclRedOp_t op;
  OK(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, comm));
  OK(ncclAllReduce(send, recv, n / 4, ncclFloat32, op, comm, NULL));
  CHECK(all_are(recv, n / 4, 7)); /* the operation was made there, too */
  OK(ncclRedOpDestroy(op, comm));
  OK(ncclReduceScatter(send, recv, n, ncclUint8, ncclSum, comm, NULL));
  CHECK(all_are(recv, n, mark));
  OK(ncclAlltoAll(send, recv, n / 2, ncclUint8, comm, NULL));
  wait_for_stream(me);
  CHECK(all_are(recv, n / 2, has_newer ? mark : 1));
  memset(recv, 0, n);
  OK(ncclGroupStart());
  OK(ncclSend(send, n, ncclUint8, (me->rank + 1) % me->size, comm, NULL));
  OK(ncclRecv(recv, n, ncclUint8, (me->rank + 1) % me->size, comm, NULL));
  OK(ncclGroupEnd());
  CHECK(all_are(recv, n, mark));
  OK(ncclCommDestroy(comm));
}

/* A message concerns two ranks: the third one makes no call at all. */
static void message_first(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me), child = NULL;
  unsigned char* const memory = device_bytes(me, n);
  for (int round = 0; round < 2; ++round) {
    memset(memory, 1, n);
    if (me->rank == 1) OK(ncclSend(memory, n, ncclUint8, 2, comm, NULL));
    if (me->rank == 2) OK(ncclRecv(memory, n, ncclUint8, 1, comm, NULL));
    CHECK(all_are(memory, n, me->rank == 2 ? mark : 1));
    if (child) break;
    OK(ncclCommSplit(comm, 0, me->rank, &child, NULL));
    OK(ncclCommDestroy(comm));
    comm = child;
  }
  OK(ncclCommDestroy(comm));
}

/* All ranks are told what one of them could not do. */
static void no_id(struct client* me) {
  ncclComm_t comm = NULL;
  use_device(me);
  if (me->rank == 0) setenv("FAKE_NCCL_NO_ID", "1", 1);
  const ncclResult_t result = ncclCommInitRank(&comm, me->size, client_id(me, 0), me->rank);
  CHECK(result == (me->rank == 0 ? ncclSystemError : ncclRemoteError));
  CHECK(strstr(ncclGetLastError(NULL), "PITH_NCCL_FALLBACK") != NULL);
  ncclComm_t all[2] = {(ncclComm_t)(uintptr_t)me, (ncclComm_t)(uintptr_t)me};
  if (me->rank == 0) CHECK(ncclCommInitAll(all, 2, NULL) != ncclSuccess);
  CHECK(me->rank != 0 || (all[0] == NULL && all[1] == NULL)); /* none came of it */
}

/* Several ranks of a process, blocking = 0, and InitAll have theirs, too. */
static void made_otherwise(struct client* me) {
  ncclComm_t comms[3];
  use_device(me);
  unsigned char* const memory = device_bytes(me, n);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  const ncclUniqueId id = client_id(me, 0);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; ++i) OK(ncclCommInitRank(&comms[i], 2 * me->size, id, 2 * me->rank + i));
  OK(ncclGroupEnd());
  config.blocking = 0;
  ncclResult_t state =
      ncclCommInitRankConfig(&comms[2], me->size, client_id(me, 1), me->rank, &config);
  while (state == ncclInProgress) OK(ncclCommGetAsyncError(comms[2], &state));
  CHECK(state == ncclSuccess);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i) {
      memset(memory, 1, n);
      OK(ncclBroadcast(memory, memory, n, ncclUint8, 0, comms[i], NULL));
      CHECK(all_are(memory, n, mark));
      OK(ncclCommDestroy(comms[i]));
    }
    if (round == 0) OK(ncclCommInitAll(comms, 3, NULL));
  }
}

/* An operation may be forgotten before its group ends; an unknown one is refused at once. */
static void forgotten_operation(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  float seven = 7;
  unsigned char *send = device_bytes(me, n), *recv = device_bytes(me, n);
  ncclRedOp_t op;
  OK(ncclRedOpCreatePreMulSum(&op, &seven, ncclFloat32, ncclScalarHostImmediate, comm));
  OK(ncclGroupStart());
  OK(ncclAllReduce(send, recv, n / 4, ncclFloat32, op, comm, NULL));
  OK(ncclRedOpDestroy(op, comm));
  OK(ncclGroupEnd());
  CHECK(all_are(recv, n / 4, 7));
  FAILS(ncclInvalidArgument, ncclAllReduce(send, recv, n / 4, ncclFloat32, op, comm, NULL));
  FAILS(ncclInvalidArgument, ncclAllReduce(send, recv, n, (ncclDataType_t)77, ncclSum, comm, NULL));
  OK(ncclCommDestroy(comm));
}

/* The other library's error takes nothing away from ranks that count on Pith's calls. */
static void error_beside_ours(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  unsigned char *send = device_bytes(me, n), *recv = device_bytes(me, 8 * n);
  unsigned char* const sum = device_bytes(me, n);
  memset(send, 1, n);
  OK(ncclGroupStart());
  OK(ncclAllReduce(send, sum, n, ncclUint8, ncclSum, comm, NULL));
  OK(ncclBroadcast(send, recv, me->rank == 0 ? 13 : n, ncclUint8, 0, comm, NULL));
  const ncclResult_t result = ncclGroupEnd();
  CHECK(result == (me->rank == 0 ? ncclSystemError : ncclSuccess));
  wait_for_stream(me);
  CHECK(all_are(sum, n, me->size));
  client_meet(me, 0);
  ncclResult_t state = ncclInternalError;
  OK(ncclCommRevoke(comm, 0)); /* there, too */
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess);
  FAILS(ncclInvalidUsage, ncclBroadcast(send, recv, n, ncclUint8, 0, comm, NULL));
  OK(ncclCommDestroy(comm));
}

/* Other kernels cannot read it, so it is ours whatever the list says. */
static void served_here(struct client* me) {
  ncclComm_t comm = client_join(me);
  unsigned char send[n], recv[8 * n];
  for (int i = 0; i < 3; ++i) {
    memset(send, me->rank == 1 ? 7 : 1, n);
    OK(ncclAllReduce(send, recv, n, ncclUint8, ncclMax, comm, NULL));
    CHECK(all_are(recv, n, 7));
    OK(ncclBroadcast(send, recv, n, ncclUint8, 1, comm, NULL));
    CHECK(all_are(recv, n, 7));
  }
  OK(ncclCommDestroy(comm));
}

static void host_memory(struct client* me) {
  use_device(me);
  served_here(me);
}

/* What is not on a device is ours, and who serves a kind is told once. */
static void automatic(struct client* me) {
  char text[16384];
  client_log();
  served_here(me);
  client_take_log(me, text, sizeof text);
  CHECK(client_times_in(text, "AllReduce is served by Pith") == 1);
  CHECK(client_times_in(text, "AllReduce is served by") == 1);
}

static const char* other;
static void automatic_on_device(struct client* me) {
  char text[16384], line[1200];
  client_log();
  use_device(me);
  ncclComm_t comm = client_join(me);
  unsigned char *send = device_bytes(me, n), *recv = device_bytes(me, n), host[n];
  for (int i = 0; i < 3; ++i) {
    memset(recv, 0, n);
    OK(ncclAllReduce(send, recv, n, ncclUint8, ncclSum, comm, NULL));
    CHECK(all_are(recv, n, mark));
    memset(recv, 0, n);
    /* Off root send is not looked at. */
    OK(ncclBroadcast(me->rank == 0 ? send : host, recv, n, ncclUint8, 0, comm, NULL));
    CHECK(all_are(recv, n, mark));
    memset(host, 1, n);
    OK(ncclAllReduce(host, host, n, ncclUint8, ncclSum, comm, NULL));
    CHECK(all_are(host, n, me->size));
  }
  OK(ncclCommDestroy(comm));
  client_take_log(me, text, sizeof text);
  snprintf(line, sizeof line, "AllReduce is served by %s", other);
  CHECK(client_times_in(text, line) == 1);
  CHECK(client_times_in(text, "AllReduce is served by Pith") == 1);
  snprintf(line, sizeof line, "Broadcast is served by %s", other);
  CHECK(client_times_in(text, line) == 1 && client_times_in(text, "Broadcast is served by") == 1);
}

/* Their messages are stated to be slow to begin and fast to go on. */
static void by_model(struct client* me) {
  enum { much = 1 << 22 };
  use_device(me);
  ncclComm_t comm = client_join(me);
  unsigned char *send = device_bytes(me, much), *recv = device_bytes(me, much);
  memset(send, 1, much);
  OK(ncclAllReduce(send, recv, n, ncclUint8, ncclSum, comm, NULL));
  wait_for_stream(me);
  CHECK(all_are(recv, n, me->size));
  OK(ncclAllReduce(send, recv, much, ncclUint8, ncclSum, comm, NULL));
  CHECK(all_are(recv, much, mark));
  memset(recv, 0, much);
  OK(ncclBroadcast(send, recv, n, ncclUint8, 0, comm, NULL));
  wait_for_stream(me);
  CHECK(all_are(recv, n, 1));
  FAILS(ncclInvalidArgument, ncclAllReduce(send, recv, n, (ncclDataType_t)77, ncclSum, comm, NULL));
  float times[2]; /* of one message here, and of one there, which all messages are */
  for (int i = 0; i < 2; ++i) {
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    OK(ncclGroupStart());
    if (i == 0) OK(ncclBroadcast(send, recv, n, ncclUint8, 0, comm, NULL));
    if (i == 1) OK(ncclSend(send, n, ncclUint8, 1 - me->rank, comm, NULL));
    OK(ncclGroupSimulateEnd(&info));
    times[i] = info.estimatedTime;
  }
  CHECK(times[0] > 4 && times[0] < 10 && times[1] > 40 && times[1] < 60);
  OK(ncclCommDestroy(comm));
}

static const char* wrong;
static void refused(struct client* me) {
  ncclComm_t comm = NULL;
  FAILS(ncclInvalidArgument, ncclCommInitAll(&comm, 1, NULL));
  CHECK(strstr(ncclGetLastError(NULL), wrong) != NULL);
}

int main(int count, char** arguments) {
  if (count != 5) return 2;
  other = arguments[1];
  driver_path = arguments[3];
  char fake[1024], own[1024];
  snprintf(fake, sizeof fake, "PITH_NCCL_FALLBACK=%s", arguments[1]);
  snprintf(own, sizeof own, "PITH_NCCL_FALLBACK=%s", arguments[2]);
  const char* some[] = {fake, "PITH_NCCL_FALLBACK_FOR=broadcast,allgather", NULL};
  const char* every[] = {fake, "PITH_NCCL_FALLBACK_FOR=all", NULL};
  const char* by_itself[] = {fake, NULL};
  client_run("some kinds", 3, some, some_kinds);
  client_run("every kind", 2, every, every_kind);
  char older[1024];
  snprintf(older, sizeof older, "PITH_NCCL_FALLBACK=%s", arguments[4]);
  const char* every_older[] = {older, every[1], NULL};
  has_newer = 0;
  client_run("every kind of an older one", 2, every_older, every_kind);
  client_run("auto", 2, by_itself, automatic);
  client_run("auto on a device", 2, by_itself, automatic_on_device);
  const char* modelled[] = {fake, "PITH_NCCL_FALLBACK_LINES=5:1,50:20", NULL};
  client_run("model", 2, modelled, by_model);
  client_run("host memory without a driver", 2, some, served_here);
  client_run("host memory", 2, every, host_memory);
  const char* messages[] = {fake, "PITH_NCCL_FALLBACK_FOR=send", NULL};
  client_run("message first", 3, messages, message_first);
  client_run("no id", 3, every, no_id);
  const char* devices[] = {some[0], some[1], "PITH_CUDA_STUB_DEVICES=3", NULL};
  client_run("made otherwise", 2, devices, made_otherwise);
  client_run("forgotten operation", 2, every, forgotten_operation);
  client_run("error beside ours", 2, some, error_beside_ours);
  wrong = "it is this one";
  const char* ours[] = {own, NULL};
  client_run("itself", 1, ours, refused);
  wrong = "PITH_NCCL_FALLBACK is \"/nowhere\"";
  const char* nowhere[] = {"PITH_NCCL_FALLBACK=/nowhere", NULL};
  client_run("nowhere", 1, nowhere, refused);
  wrong = "alltoall";
  const char* unknown[] = {fake, "PITH_NCCL_FALLBACK_FOR=all-to-all", NULL};
  client_run("unknown kind", 1, unknown, refused);
  wrong = "PITH_NCCL_FALLBACK_LINES is \"20:10\"";
  const char* half[] = {fake, "PITH_NCCL_FALLBACK_LINES=20:10", NULL};
  client_run("one line", 1, half, refused);
  wrong = "PITH_ENCRYPT=1";
  const char* encrypted[] = {fake, wrong, NULL};
  client_run("encrypted", 1, encrypted, refused);
  return 0;
}
