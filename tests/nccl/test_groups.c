/* What groups do: calls, communicators made in them, errors, and ends. */
#include <string.h>

#include "communicators.h"

/* Several ranks of a process, by a group; then one more communicator of all. */
static void grouped(struct client* me) {
  ncclComm_t comms[2] = {NULL, NULL};
  const ncclUniqueId id = client_id(me, 0);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; ++i) OK(ncclCommInitRank(&comms[i], 2 * me->size, id, 2 * me->rank + i));
  OK(ncclGroupEnd());
  float send = 1, recv[2];
  OK(ncclGroupStart());
  OK(ncclGroupStart()); /* depth is a counter */
  for (int i = 0; i < 2; ++i) {
    OK(ncclAllReduce(&send, &recv[i], 1, ncclFloat32, ncclSum, comms[i], NULL));
  }
  OK(ncclGroupEnd());
  OK(ncclGroupEnd());
  FAILS(ncclInvalidUsage, ncclGroupEnd());
  CHECK(recv[0] == (float)(2 * me->size) && recv[1] == recv[0]);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; ++i) OK(ncclCommDestroy(comms[i]));
  OK(ncclGroupEnd());
}

static void errors_in_groups(struct client* me) {
  ncclComm_t comm = client_join(me);
  float value = 1;
  OK(ncclGroupStart());
  FAILS(ncclInvalidArgument, ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, NULL, NULL));
  FAILS(ncclInvalidArgument, ncclGroupEnd());
  OK(ncclGroupStart());
  OK(ncclGroupEnd());
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  OK(ncclGroupStart());
  OK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, NULL));
  OK(ncclGroupSimulateEnd(&info));
  CHECK(me->size == 1 || info.estimatedTime > 0);
  CHECK(value == 1);
  FAILS(ncclInvalidUsage, ncclGroupEnd());
  CHECK(sum_over(me, comm, 1) == (float)me->size);
  OK(ncclCommDestroy(comm));
}

/* A group's communicators are all blocking, or none is. */
static void mixed_in_a_group(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t waits = client_join(me), polls = NULL, other = NULL;
  ncclResult_t begun =
      ncclCommInitRankConfig(&polls, me->size, client_id(me, 1), me->rank, &config);
  CHECK(begun == ncclInProgress || begun == ncclSuccess);
  CHECK(settle(polls) == ncclSuccess);
  float value = 1, sums[2] = {0, 0};
  ncclComm_t order[2][2] = {{waits, polls}, {polls, waits}};
  for (int first = 0; first < 2; ++first) {
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    OK(ncclAllReduce(&value, sums, 1, ncclFloat32, ncclSum, order[first][0], NULL));
    OK(ncclGroupEnd());
    FAILS(ncclInvalidArgument,
          ncclAllReduce(&value, sums, 1, ncclFloat32, ncclSum, order[first][1], NULL));
    CHECK(strstr(ncclGetLastError(NULL), "blocking = ") != NULL);
    FAILS(ncclInvalidArgument, ncclGroupEnd());
  }
  OK(ncclGroupStart());
  OK(ncclAllReduce(&value, sums, 1, ncclFloat32, ncclSum, waits, NULL));
  FAILS(ncclInvalidArgument,
        ncclCommInitRankConfig(&other, me->size, client_id(me, 2), me->rank, &config));
  FAILS(ncclInvalidArgument, ncclCommSplit(polls, 0, 0, &other, NULL));
  FAILS(ncclInvalidArgument, ncclGroupEnd());
  CHECK(other == NULL);
  /* Nothing of it has begun: both go on, each in its own group. */
  for (int i = 0; i < 2; ++i) {
    OK(ncclGroupStart());
    OK(ncclAllReduce(&value, &sums[i], 1, ncclFloat32, ncclSum, order[0][i], NULL));
    const ncclResult_t ended = ncclGroupEnd();
    CHECK(ended == ncclSuccess || ended == ncclInProgress);
    CHECK(settle(order[0][i]) == ncclSuccess && sums[i] == (float)me->size);
  }
  OK(ncclCommDestroy(polls));
  OK(ncclCommDestroy(waits));
}

/* A communicator that this thread's group holds calls of does not end before them: a group that
 * never ends would lose them. */
static void in_an_open_group(struct client* me) {
  ncclComm_t comm = client_join(me), other = NULL, child = NULL;
  const int next = (me->rank + 1) % me->size, before = (me->rank + me->size - 1) % me->size;
  static float send[4096], recv[4096]; /* as many as PITH_COMPRESS wants here */
  const int n = sizeof send / sizeof *send;
  OK(ncclCommSplit(comm, 0, 0, &other, NULL));
  for (int turn = 0; turn < 3; ++turn) {
    int in = -1;
    for (int i = 0; i < n; ++i) send[i] = 1;
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    if (turn == 0) OK(ncclAllReduce(send, recv, (size_t)n, ncclFloat32, ncclSum, comm, NULL));
    if (turn == 1) OK(ncclSend(&me->rank, 1, ncclInt32, next, comm, NULL));
    if (turn == 1) OK(ncclRecv(&in, 1, ncclInt32, before, comm, NULL));
    if (turn == 2) OK(ncclCommSplit(comm, 0, 0, &child, NULL));
    OK(ncclGroupEnd());
    FAILS(ncclInvalidUsage, ncclCommDestroy(comm));
    CHECK(strstr(ncclGetLastError(NULL), "ncclCommDestroy: comm has calls in the group") != NULL);
    CHECK(strstr(ncclGetLastError(NULL), "ncclGroupEnd") != NULL);
    FAILS(ncclInvalidUsage, ncclCommFinalize(comm));
    CHECK(strstr(ncclGetLastError(NULL), "ncclCommFinalize: comm has calls in the group") != NULL);
    if (turn == 2) OK(ncclCommDestroy(other)); /* which has none */
    OK(ncclGroupEnd());
    if (turn == 0) CHECK(recv[0] == (float)me->size && recv[n - 1] == (float)me->size);
    if (turn == 1) CHECK(in == before);
  }
  CHECK(sum_over(me, child, 1) == (float)me->size);
  OK(ncclGroupStart());
  OK(ncclCommDestroy(child));
  OK(ncclGroupEnd());
  OK(ncclCommFinalize(comm));
  OK(ncclCommDestroy(comm));
}

/* What a group has collected does not begin after an abort, though nothing ran. */
static void aborts_in_group(struct client* me) {
  ncclComm_t comm = client_join(me);
  float value = 1;
  if (me->rank == 0) {
    OK(ncclGroupStart());
    OK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, NULL));
    OK(ncclCommAbort(comm));
    FAILS(ncclRemoteError, ncclGroupEnd());
    CHECK(strstr(ncclGetLastError(NULL), "rank 0 aborted") != NULL);
    return;
  }
  FAILS(ncclRemoteError, ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, NULL));
  OK(ncclCommAbort(comm));
}

/* In a group the handle is there at once, as NCCL has it, and gone if the group fails. */
static void promised(struct client* me) {
  ncclComm_t comm = NULL, again = NULL, before;
  int count = 0;
  ncclResult_t state = ncclSuccess;
  OK(ncclGroupStart());
  OK(ncclCommInitRank(&comm, me->size, client_id(me, 0), me->rank));
  before = comm;
  CHECK(before != NULL);
  OK(ncclCommGetAsyncError(before, &state));
  CHECK(state == ncclInProgress);
  FAILS(ncclInvalidArgument, ncclCommCount(before, &count));
  OK(ncclGroupEnd());
  CHECK(comm == before);
  OK(ncclCommGetAsyncError(before, &state));
  OK(ncclCommCount(before, &count));
  CHECK(state == ncclSuccess && count == me->size && sum_over(me, before, 1) == (float)count);
  OK(ncclCommDestroy(before));
  /* A call that is refused ends the group before anything is made. */
  OK(ncclGroupStart());
  OK(ncclCommInitRank(&comm, me->size, client_id(me, 1), me->rank));
  before = comm;
  FAILS(ncclInvalidArgument, ncclCommInitRank(&again, 1, client_id(me, 2), 1));
  FAILS(ncclInvalidArgument, ncclGroupEnd());
  CHECK(comm == NULL && again == NULL);
  FAILS(ncclInvalidArgument, ncclCommAbort(before));
  /* So does an abort. */
  OK(ncclGroupStart());
  ncclUniqueId own;
  OK(ncclGetUniqueId(&own));
  OK(ncclCommInitRank(&comm, 1, own, 0));
  before = comm;
  OK(ncclCommAbort(before));
  FAILS(ncclRemoteError, ncclGroupEnd());
  CHECK(comm == NULL);
  /* And a handle that is destroyed is its maker's failure. */
  OK(ncclGroupStart());
  OK(ncclCommInitRankScalable(&comm, 1, 0, 1, &own, NULL));
  OK(ncclCommDestroy(comm));
  FAILS(ncclInvalidArgument, ncclGroupEnd());
  CHECK(strncmp(ncclGetLastError(NULL), "ncclCommInitRankScalable: ", 26) == 0);
}

/* And with blocking = 0 it is made after the group's end. */
static void promised_in_the_background(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = NULL, before;
  ncclResult_t state = ncclSuccess;
  OK(ncclGroupStart());
  const ncclResult_t begun =
      ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config);
  CHECK(begun == ncclSuccess || begun == ncclInProgress);
  before = comm;
  CHECK(before != NULL);
  OK(ncclCommGetAsyncError(before, &state));
  CHECK(state == ncclInProgress);
  const ncclResult_t ended = ncclGroupEnd();
  CHECK((ended == ncclSuccess || ended == ncclInProgress) && settle(before) == ncclSuccess);
  CHECK(comm == before);
  OK(ncclCommDestroy(before));
}

int main(void) {
  client_run("grouped InitRank", 3, NULL, grouped);
  client_run("handles in a group", 2, NULL, promised);
  client_run("handles in a group, blocking = 0", 2, NULL, promised_in_the_background);
  client_run("errors in groups", 1, NULL, errors_in_groups);
  client_run("errors in groups", 2, NULL, errors_in_groups);
  client_run("blocking and not in one group", 2, NULL, mixed_in_a_group);
  client_run("in an open group", 3, NULL, in_an_open_group);
  const char* compressed[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K", NULL};
  client_run("in an open group, compressed", 3, compressed, in_an_open_group);
  client_run("abort in a group", 2, NULL, aborts_in_group);
  return 0;
}
