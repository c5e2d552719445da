/* Eight processes and NCCL's host interface: every type, groups of many calls, grids of
 * communicators, and ranks that abort, revoke or die while the others wait. Keeps to what nccl.h
 * of 2.28.9 declares, so that it can be compiled against NVIDIA's own, too. */
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

enum { n = 129 };

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int sum_over(struct client* me, ncclComm_t comm, int mine) {
  int sum = 0;
  OK(ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, NULL));
  return sum;
}

/* One and eight, as bytes of each type, the lowest first. */
static const struct {
  ncclDataType_t type;
  size_t bytes;
  uint64_t one, eight;
} types[] = {
    {ncclInt8, 1, 1, 8},
    {ncclUint8, 1, 1, 8},
    {ncclInt32, 4, 1, 8},
    {ncclUint32, 4, 1, 8},
    {ncclInt64, 8, 1, 8},
    {ncclUint64, 8, 1, 8},
    {ncclFloat16, 2, 0x3c00, 0x4800},
    {ncclFloat32, 4, 0x3f800000, 0x41000000},
    {ncclFloat64, 8, 0x3ff0000000000000, 0x4020000000000000},
    {ncclBfloat16, 2, 0x3f80, 0x4100},
    {ncclFloat8e4m3, 1, 0x38, 0x50},
    {ncclFloat8e5m2, 1, 0x3c, 0x48},
};

static void fill(char* out, size_t count, size_t bytes, uint64_t value) {
  for (size_t i = 0; i < count; ++i) memcpy(out + i * bytes, &value, bytes);
}

static int holds(const char* found, size_t count, size_t bytes, uint64_t value) {
  for (size_t i = 0; i < count; ++i) {
    if (memcmp(found + i * bytes, &value, bytes) != 0) return 0;
  }
  return 1;
}

/* Of ones everywhere the sum is the number of ranks, and all else is one. */
static void every_type(struct client* me) {
  ncclComm_t comm = client_join(me);
  char send[8 * n * 8], recv[n * 8];
  for (size_t t = 0; t < sizeof types / sizeof *types; ++t) {
    const ncclDataType_t type = types[t].type;
    const size_t bytes = types[t].bytes;
    for (int op = ncclSum; op <= ncclAvg; ++op) {
      const uint64_t expected = op == ncclSum ? types[t].eight : types[t].one;
      const ncclRedOp_t as = (ncclRedOp_t)op;
      fill(send, (size_t)(8 * n), bytes, types[t].one);
      memset(recv, 0, sizeof recv);
      OK(ncclAllReduce(send, recv, n, type, as, comm, NULL));
      CHECK(holds(recv, n, bytes, expected));
      memset(recv, 0, sizeof recv);
      OK(ncclReduceScatter(send, recv, n, type, as, comm, NULL));
      CHECK(holds(recv, n, bytes, expected));
      OK(ncclReduce(send, recv, n, type, as, 7, comm, NULL));
      CHECK(me->rank != 7 || holds(recv, n, bytes, expected));
    }
  }
  OK(ncclCommDestroy(comm));
}

/* A group with all there is: everyone sends everyone another length, twice, and three collectives
 * run between; on two communicators, which the ranks name in other orders. */
static void one_group(struct client* me) {
  ncclComm_t comms[2] = {client_join(me), NULL};
  OK(ncclCommSplit(comms[0], 0, -me->rank, &comms[1], NULL));
  int out[8][2][n], in[8][2][n], sums[2], gathered[8], rooted = -1;
  const int mine = me->rank + 1;
  memset(in, 0xff, sizeof in);
  OK(ncclGroupStart());
  for (int peer = 0; peer < 8; ++peer) {
    for (int which = 0; which < 2; ++which) {
      for (int i = 0; i < n; ++i) out[peer][which][i] = 100 * me->rank + 10 * peer + which;
      OK(ncclSend(out[peer][which], (size_t)(8 * peer + which), ncclInt32, peer, comms[0], NULL));
      OK(ncclRecv(in[peer][which], (size_t)(8 * me->rank + which), ncclInt32, peer, comms[0],
                  NULL));
    }
  }
  for (int i = 0; i < 2; ++i) {
    const int which = (i + me->rank) % 2;
    OK(ncclAllReduce(&mine, &sums[which], 1, ncclInt32, ncclSum, comms[which], NULL));
  }
  OK(ncclAllGather(&mine, gathered, 1, ncclInt32, comms[1], NULL));
  OK(ncclBroadcast(&mine, &rooted, 1, ncclInt32, 5, comms[0], NULL));
  OK(ncclGroupEnd());
  for (int peer = 0; peer < 8; ++peer) {
    CHECK(gathered[peer] == 8 - peer);
    for (int which = 0; which < 2; ++which) {
      const int length = 8 * me->rank + which;
      for (int i = 0; i < n; ++i) {
        CHECK(in[peer][which][i] == (i < length ? 100 * peer + 10 * me->rank + which : -1));
      }
    }
  }
  CHECK(sums[0] == 36 && sums[1] == 36 && rooted == 6);
  OK(ncclCommDestroy(comms[1]));
  OK(ncclCommDestroy(comms[0]));
}

/* Rows and columns of a grid, as parallel training has them, made in one group each, from an id of
 * more than one root. */
static void grid(struct client* me) {
  ncclUniqueId ids[2] = {client_id(me, 0), client_id(me, 1)};
  ncclComm_t comm = NULL, row = NULL, column = NULL, pair = NULL;
  OK(ncclCommInitRankScalable(&comm, me->size, me->rank, 2, ids, NULL));
  OK(ncclCommSplit(comm, me->rank / 4, me->rank, &row, NULL));
  OK(ncclCommSplit(comm, me->rank % 4, -me->rank, &column, NULL));
  int rank, count;
  OK(ncclCommUserRank(column, &rank));
  OK(ncclCommCount(column, &count));
  CHECK(count == 2 && rank == 1 - me->rank / 4);
  for (int i = 0; i < 50; ++i) {
    const int of_row = sum_over(me, row, me->rank + i);
    CHECK(of_row == 16 * (me->rank / 4) + 6 + 4 * i);
    CHECK(sum_over(me, column, of_row) == 28 + 8 * i);
  }
  OK(ncclCommSplit(row, me->rank % 4 < 2 ? 3 : NCCL_SPLIT_NOCOLOR, me->rank, &pair, NULL));
  CHECK((pair == NULL) == (me->rank % 4 >= 2));
  if (pair) {
    CHECK(sum_over(me, pair, 1) == 2);
    OK(ncclCommDestroy(pair));
  }
  OK(ncclGroupStart());
  OK(ncclCommDestroy(row));
  OK(ncclCommDestroy(column));
  OK(ncclCommDestroy(comm));
  OK(ncclGroupEnd());
}

/* What a call that can never end answers, and that it does so soon. */
static void expect_soon(struct client* me, ncclComm_t comm, ncclResult_t expected) {
  const double begin = now_s();
  int mine = 1, sum = 0;
  const ncclResult_t result = ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, NULL);
  CHECK(result == expected);
  CHECK(now_s() - begin < 10);
}

/* Rank 5 gives up while all others are in a call; who is left goes on without it. */
static void aborted_by_one(struct client* me) {
  ncclComm_t comm = client_join(me), fewer = NULL;
  CHECK(sum_over(me, comm, 1) == 8);
  if (me->rank == 5) {
    usleep(200 * 1000);
    OK(ncclCommAbort(comm));
    return;
  }
  expect_soon(me, comm, ncclRemoteError);
  CHECK(strstr(ncclGetLastError(NULL), "rank 5") != NULL);
  ncclResult_t state = ncclSuccess;
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclRemoteError);
  int excluded[1] = {5}, rank = -1;
  OK(ncclCommShrink(comm, excluded, 1, &fewer, NULL, NCCL_SHRINK_ABORT));
  OK(ncclCommUserRank(fewer, &rank));
  CHECK(rank == me->rank - (me->rank > 5));
  CHECK(sum_over(me, fewer, 1) == 7);
  OK(ncclCommDestroy(fewer));
  OK(ncclCommAbort(comm));
}

/* Two end without a word, one of them the one that made the id. */
static void ended_without_a_word(struct client* me) {
  ncclComm_t comm = client_join(me), fewer = NULL;
  CHECK(sum_over(me, comm, 1) == 8);
  if (me->rank == 0 || me->rank == 6) {
    usleep(200 * 1000);
    _exit(0);
  }
  expect_soon(me, comm, ncclRemoteError);
  int excluded[2] = {0, 6};
  OK(ncclCommShrink(comm, excluded, 2, &fewer, NULL, NCCL_SHRINK_ABORT));
  CHECK(sum_over(me, fewer, 1) == 6);
  OK(ncclCommDestroy(fewer));
  OK(ncclCommDestroy(comm));
}

/* What a watchdog hears at last of a communicator on which nothing runs. */
static void await_failure(struct client* me, ncclComm_t comm, ncclResult_t expected) {
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) {
    OK(ncclCommGetAsyncError(comm, &state));
    usleep(1000);
  }
  CHECK(state == expected);
}

/* Of a failure that nobody was in a call of, one line is enough, however often it is asked for; and
 * each call is refused for it, be it of nothing, or the end. */
static void ended_between_calls(struct client* me) {
  char before[16384], text[16384];
  client_log();
  ncclComm_t comm = client_join(me);
  int count = 0;
  CHECK(sum_over(me, comm, 1) == me->size);
  if (me->rank == 1) _exit(0);
  await_failure(me, comm, ncclRemoteError);
  CHECK(strstr(ncclGetLastError(NULL), "rank 1") != NULL);
  FAILS(ncclInvalidArgument, ncclCommCount(NULL, &count));
  client_take_log(me, before, sizeof before);
  for (int i = 0; i < 20; ++i) await_failure(me, comm, ncclRemoteError);
  client_take_log(me, text, sizeof text);
  CHECK(strcmp(before, text) == 0);
  CHECK(strstr(ncclGetLastError(NULL), "comm is NULL") != NULL);
  for (int i = 0; i < 2; ++i) {
    FAILS(ncclRemoteError, ncclAllReduce(NULL, NULL, 0, ncclInt32, ncclSum, comm, NULL));
    CHECK(strstr(ncclGetLastError(NULL), "rank 1") != NULL);
    FAILS(ncclRemoteError, ncclCommFinalize(comm)); /* each time: it is not finalized */
  }
  OK(ncclGroupStart());
  FAILS(ncclRemoteError, ncclBroadcast(NULL, NULL, 0, ncclInt32, 0, comm, NULL));
  FAILS(ncclRemoteError, ncclGroupEnd());
  OK(ncclCommDestroy(comm));
}

static ncclComm_t revoked;
static void* revoke_soon(void* result) {
  usleep(300 * 1000);
  *(ncclResult_t*)result = ncclCommRevoke(revoked, 0);
  return NULL;
}

/* All but rank 2 wait in a call when everybody revokes from another thread. */
static void revoked_in_a_call(struct client* me) {
  ncclComm_t all = NULL;
  revoked = client_join(me);
  CHECK(sum_over(me, revoked, 1) == 8);
  ncclResult_t result = ncclInternalError;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, revoke_soon, &result) == 0);
  const double begin = now_s();
  int mine = 1, sum = 0;
  if (me->rank != 2) {
    const ncclResult_t called = ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, revoked, NULL);
    CHECK(called != ncclSuccess && called != ncclInProgress && now_s() - begin < 10);
  }
  CHECK(pthread_join(thread, NULL) == 0 && result == ncclSuccess);
  client_meet(me, 0);
  FAILS(ncclInvalidUsage, ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, revoked, NULL));
  OK(ncclCommSplit(revoked, 0, me->rank, &all, NULL));
  CHECK(sum_over(me, all, 1) == 8);
  OK(ncclCommDestroy(all));
  OK(ncclCommDestroy(revoked));
}

/* A config of the header that this was compiled with, each number of it set. */
static void configured(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  config.cgaClusterSize = 4;
  config.minCTAs = 1;
  config.maxCTAs = 32;
  config.netName = "Socket";
  config.splitShare = 1;
  config.trafficClass = 0;
  config.commName = "job";
  config.collnetEnable = 0;
  config.CTAPolicy = 1;
  config.shrinkShare = 1;
  config.nvlsCTAs = 8;
  config.nChannelsPerNetPeer = 2;
  config.nvlinkCentricSched = 0;
#if NCCL_VERSION_CODE >= 22900
  config.graphUsageMode = 2;
  config.numRmaCtx = 1;
#endif
#if NCCL_VERSION_CODE >= 23000
  config.maxP2pPeers = 4;
  config.graphStreamOrdering = 1;
#endif
  ncclComm_t comm = NULL, child = NULL;
  OK(ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config));
  OK(ncclCommSplit(comm, me->rank % 2, me->rank, &child, &config));
  CHECK(sum_over(me, child, 1) == 4);
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  int mine = 1;
  OK(ncclGroupStart());
  OK(ncclAllReduce(&mine, &mine, 1, ncclInt32, ncclSum, comm, NULL));
  OK(ncclGroupSimulateEnd(&info));
  CHECK(info.estimatedTime > 0 && mine == 1);
  OK(ncclCommDestroy(child));
  OK(ncclCommDestroy(comm));
}

int main(void) {
  client_run("every type", 8, NULL, every_type);
  client_run("one group", 8, NULL, one_group);
  client_run("grid", 8, NULL, grid);
  client_run("aborted by one", 8, NULL, aborted_by_one);
  client_run("ended without a word", 8, NULL, ended_without_a_word);
  client_run("ended between calls", 3, NULL, ended_between_calls);
  client_run("revoked in a call", 8, NULL, revoked_in_a_call);
  client_run("configured", 8, NULL, configured);
  return 0;
}
