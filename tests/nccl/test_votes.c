/* How ranks agree on what PITH_COMPRESS takes: votes in groups, in the background, and without some
 * of the ranks. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "compression.h"

/* Ranks that group the calls of one communicator in other ways hear why that ends it. */
static void grouped_otherwise(struct client* me) {
  static float send[2][n], recv[2][n];
  ncclComm_t comm = client_join(me);
  ncclResult_t result = ncclSuccess;
  if (me->rank == 0) OK(ncclGroupStart());
  for (int i = 0; i < 2 && result == ncclSuccess; ++i) {
    result = ncclAllReduce(send[i], recv[i], n, ncclFloat32, ncclSum, comm, NULL);
  }
  if (me->rank == 0) result = ncclGroupEnd();
  CHECK(result == ncclInvalidUsage);
  CHECK(strstr(ncclGetLastError(NULL), "group the calls of one communicator alike") != NULL);
  CHECK(strstr(ncclGetLastError(NULL), me->rank == 0 ? "on 2 at once" : "on 1 at once") != NULL);
  OK(ncclCommAbort(comm));
}

/* One communicator's vote waits for nothing else: a rank groups what the others call in turn. */
static void grouped_on_one_rank(struct client* me) {
  ncclComm_t first = client_join(me), second = NULL;
  OK(ncclCommSplit(first, 0, me->rank, &second, NULL));
  static float bytes[16], send[n], recv[n];
  for (int i = 0; i < steps; ++i) {
    bytes[0] = (float)(me->rank == 0 ? i : -1);
    if (me->rank == 0) OK(ncclGroupStart());
    OK(ncclBroadcast(bytes, bytes, 16, ncclFloat32, 0, first, NULL));
    sum_ones(me, second, send, recv);
    if (me->rank == 0) OK(ncclGroupEnd());
    CHECK(bytes[0] == (float)i);
    CHECK((zeros_in(recv) > 0) == (i >= 2));
  }
  OK(ncclCommDestroy(second));
  OK(ncclCommDestroy(first));
}

/* Three communicators of two ranks each; only rank 0 groups its two calls. */
static void in_a_ring(struct client* me) {
  ncclComm_t all = client_join(me), of[3];
  for (int pair = 0; pair < 3; ++pair) { /* {0, 1}, {1, 2}, {2, 0} */
    const int inside = me->rank == pair || me->rank == (pair + 1) % 3;
    of[pair] = NULL;
    OK(ncclCommSplit(all, inside ? 0 : NCCL_SPLIT_NOCOLOR, me->rank, &of[pair], NULL));
  }
  static float send[3][n], recv[3][n];
  for (int i = 0; i < steps; ++i) {
    if (me->rank == 0) OK(ncclGroupStart());
    for (int pair = 0; pair < 3; ++pair) {
      if (!of[pair]) continue;
      sum_ones(me, of[pair], send[pair], recv[pair]);
    }
    if (me->rank == 0) OK(ncclGroupEnd());
  }
  for (int pair = 0; pair < 3; ++pair) {
    CHECK(!of[pair] || zeros_in(recv[pair]) > 0);
    OK(ncclCommDestroy(of[pair]));
  }
  OK(ncclCommDestroy(all));
}

/* A vector more than once in a group has one residual, which goes with the first. */
static void repeated_in_a_group(struct client* me) {
  enum { times = 4 };
  ncclComm_t comm = client_join(me);
  static float send[n], recv[times][n];
  for (int i = 0; i < steps; ++i) {
    OK(ncclGroupStart());
    for (int t = 0; t < times; ++t) sum_ones(me, comm, send, recv[t]);
    OK(ncclGroupEnd());
    CHECK(i < 2 || zeros_in(recv[0]) > 0);
    for (int t = 1; t < times; ++t) CHECK(i < 2 || recv[t][n / 2] == (float)me->size);
  }
  OK(ncclCommDestroy(comm));
}

/* What is refused takes no part in a vote, so that nobody waits and the communicator lives on. */
static void bad_calls(struct client* me) {
  ncclComm_t comm = client_join(me);
  static float send[n], recv[n];
  fill(send, 1);
  if (me->rank == 0) {
    FAILS(ncclInvalidArgument, ncclAllReduce(send, NULL, n, ncclFloat32, ncclSum, comm, NULL));
    FAILS(ncclInvalidArgument, ncclAllReduce(NULL, recv, n, ncclFloat32, ncclSum, comm, NULL));
    FAILS(ncclInvalidArgument,
          ncclAllReduce(send, recv, (size_t)1 << 62, ncclFloat32, ncclSum, comm, NULL));
    OK(ncclGroupStart());
    FAILS(ncclInvalidArgument, ncclAllReduce(send, NULL, n, ncclFloat32, ncclSum, comm, NULL));
    FAILS(ncclInvalidArgument, ncclGroupEnd());
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    info.magic = 0;
    OK(ncclGroupStart());
    sum_up(me, comm, send, recv);
    FAILS(ncclInvalidArgument, ncclGroupSimulateEnd(&info));
    OK(ncclGroupStart());
    OK(ncclGroupEnd()); /* nothing is left of it */
  }
  sum_up(me, comm, send, recv);
  CHECK(recv[0] == (float)me->size);
  OK(ncclCommDestroy(comm));
}

/* blocking = 0: neither the vote nor the sum is over when the call returns. */
static void in_the_background(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = NULL;
  ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config);
  static float send[n], recv[n];
  for (int i = -1; i < steps; ++i) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
    CHECK(i < 3 || zeros_in(recv) > 0);
    fill(send, 1);
    state = ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, NULL);
    CHECK(state == ncclSuccess || state == ncclInProgress);
  }
  OK(ncclCommDestroy(comm));
}

/* Two such communicators that the ranks call in other orders. */
static void background_in_other_orders(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm[2] = {NULL, NULL};
  ncclResult_t state;
  static float send[2][n], recv[2][n];
  for (int c = 0; c < 2; ++c) {
    ncclCommInitRankConfig(&comm[c], me->size, client_id(me, c), me->rank, &config);
    do OK(ncclCommGetAsyncError(comm[c], &state));
    while (state == ncclInProgress);
    fill(send[c], 1);
  }
  for (int i = 0; i < steps; ++i) {
    for (int half = 0; half < 2; ++half) {
      const int c = (me->rank + half) % 2;
      state = ncclAllReduce(send[c], recv[c], n, ncclFloat32, ncclSum, comm[c], NULL);
      CHECK(state == ncclSuccess || state == ncclInProgress);
    }
    for (int c = 0; c < 2; ++c) {
      do OK(ncclCommGetAsyncError(comm[c], &state));
      while (state == ncclInProgress);
      CHECK(state == ncclSuccess);
      CHECK((zeros_in(recv[c]) > 0) == (i >= 2));
    }
  }
  for (int c = 0; c < 2; ++c) OK(ncclCommDestroy(comm[c]));
}

static ncclComm_t aborted;
static void* abort_soon(void* unused) {
  usleep(300 * 1000);
  ncclCommAbort(aborted);
  return unused;
}

/* While rank 0 waits for votes, alone and in a group, another thread takes its handle away. */
static void aborted_in_a_vote(struct client* me) {
  static float send[n], recv[n];
  for (int grouped = 0; grouped < 2; ++grouped) {
    OK(ncclCommInitRank(&aborted, me->size, client_id(me, grouped), me->rank));
    if (me->rank == 0) {
      pthread_t thread;
      CHECK(pthread_create(&thread, NULL, abort_soon, NULL) == 0);
      if (grouped) OK(ncclGroupStart());
      ncclResult_t result = ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, aborted, NULL);
      if (grouped) {
        CHECK(result == ncclSuccess);
        OK(ncclAllReduce(send, recv, 1, ncclFloat32, ncclSum, aborted, NULL));
        result = ncclGroupEnd();
      }
      CHECK(result == ncclRemoteError);
      CHECK(strstr(ncclGetLastError(NULL), "rank 0 aborted") != NULL);
      CHECK(pthread_join(thread, NULL) == 0);
    }
    client_meet(me, grouped);
    if (me->rank != 0) OK(ncclCommAbort(aborted));
  }
}

int main(void) {
  const char* world[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K", NULL};
  const char* pairs[] = {world[0], "PITH_COMPRESS_COMM=*", NULL};
  client_run("grouped on one rank", 2, world, grouped_on_one_rank);
  client_run("in a ring", 3, pairs, in_a_ring);
  client_run("repeated in a group", 2, world, repeated_in_a_group);
  client_run("bad calls", 2, world, bad_calls);
  client_run("blocking = 0", 2, world, in_the_background);
  client_run("background in other orders", 2, pairs, background_in_other_orders);
  client_run("abort in a vote", 2, world, aborted_in_a_vote);
  client_run("grouped otherwise", 2, world, grouped_otherwise);
  return 0;
}
