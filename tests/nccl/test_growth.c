/* Communicators that grow, as of NCCL 2.29: by new processes, in a group, without blocking, and
 * in place of ranks that died. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "communicators.h"
#include "compression.h"

/* The communicator of the first processes; NULL on the others. */
static ncclComm_t members_of(struct client* me, int members) {
  ncclComm_t comm = NULL;
  const ncclUniqueId id = client_id(me, 0);
  if (me->rank < members) OK(ncclCommInitRank(&comm, members, id, me->rank));
  return comm;
}

/* The id that the coordinator, a process that is a member, makes. */
static ncclUniqueId growth_id(struct client* me, ncclComm_t comm, int coordinator, int which) {
  if (me->rank == coordinator) {
    OK(ncclCommGetUniqueId(comm, &me->shared->id[which]));
    me->shared->id_ready[which] = 1;
  }
  while (!me->shared->id_ready[which]) usleep(1000);
  return me->shared->id[which];
}

static void has_rank(struct client* me, ncclComm_t comm, int rank, int size) {
  int found_rank = -1, found_size = -1;
  OK(ncclCommUserRank(comm, &found_rank));
  OK(ncclCommCount(comm, &found_size));
  CHECK(found_rank == rank && found_size == size);
}

static void grown(struct client* me) {
  ncclComm_t comm = members_of(me, 3), more = NULL;
  const ncclUniqueId id = growth_id(me, comm, 2, 1);
  if (comm) {
    OK(ncclCommGrow(comm, 5, me->rank == 2 ? &id : NULL, -1, &more, NULL));
  } else {
    OK(ncclCommGrow(NULL, 5, &id, me->rank, &more, NULL));
  }
  has_rank(me, more, me->rank, 5);
  CHECK(sum_over(me, more, (float)me->rank) == 10);
  if (comm) CHECK(sum_over(me, comm, 1) == 3);
  OK(ncclCommDestroy(comm));
  CHECK(sum_over(me, more, 1) == 5);
  OK(ncclCommDestroy(more));
}

/* All members give the id, as some programs do. */
static void grown_in_a_group(struct client* me) {
  ncclComm_t comm = members_of(me, 2), more[2] = {NULL, NULL};
  const ncclUniqueId id = growth_id(me, comm, 0, 1);
  OK(ncclGroupStart());
  if (me->rank == 0) OK(ncclCommGrow(NULL, 4, &id, 3, &more[1], NULL));
  OK(ncclCommGrow(comm, 4, &id, me->rank < 2 ? -1 : 2, &more[0], NULL));
  OK(ncclGroupEnd());
  has_rank(me, more[0], me->rank, 4);
  if (more[1]) has_rank(me, more[1], 3, 4);
  float mine[2] = {1, 1};
  OK(ncclGroupStart());
  for (int i = 0; i < 2; ++i) {
    if (more[i]) OK(ncclAllReduce(&mine[i], &mine[i], 1, ncclFloat32, ncclSum, more[i], NULL));
  }
  OK(ncclGroupEnd());
  CHECK(mine[0] == 4);
  OK(ncclGroupStart());
  for (int i = 0; i < 2; ++i) OK(ncclCommDestroy(more[i]));
  OK(ncclGroupEnd());
  OK(ncclCommDestroy(comm));
}

static void grown_without_blocking(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = NULL, more = NULL;
  const ncclUniqueId first = client_id(me, 0);
  if (me->rank < 2) {
    CHECK(ncclCommInitRankConfig(&comm, 2, first, me->rank, &config) == ncclInProgress);
    OK(settle(comm));
  }
  const ncclUniqueId id = growth_id(me, comm, 0, 1);
  if (comm) {
    CHECK(ncclCommGrow(comm, 3, me->rank == 0 ? &id : NULL, -1, &more, NULL) == ncclInProgress);
    OK(settle(comm));
  } else {
    CHECK(ncclCommGrow(NULL, 3, &id, 2, &more, &config) == ncclInProgress);
  }
  OK(settle(more));
  has_rank(me, more, me->rank, 3);
  OK(ncclCommDestroy(more));
  OK(ncclCommDestroy(comm));
}

/* The last process takes the place of the one that dies. */
static void grown_after_a_death(struct client* me) {
  ncclComm_t comm = members_of(me, 3), fewer = NULL, whole = NULL;
  if (me->rank == 3) {
    while (!me->shared->id_ready[1]) usleep(1000);
    OK(ncclCommGrow(NULL, 3, &me->shared->id[1], 2, &whole, NULL));
    CHECK(sum_over(me, whole, 1) == 3);
    OK(ncclCommDestroy(whole));
    return;
  }
  CHECK(sum_over(me, comm, 1) == 3);
  me->shared->note[me->rank][0] = 1;
  if (me->rank == 0) { /* goes without a goodbye, once the others have their sums */
    while (me->shared->note[1][0] == 0 || me->shared->note[2][0] == 0) usleep(1000);
    _exit(0);
  }
  float sum = 0;
  while (ncclAllReduce(&sum, &sum, 1, ncclFloat32, ncclSum, comm, NULL) == ncclSuccess) {
  }
  FAILS(ncclRemoteError, ncclCommGrow(comm, 4, NULL, -1, &whole, NULL));
  int dead = 0;
  OK(ncclCommShrink(comm, &dead, 1, &fewer, NULL, NCCL_SHRINK_ABORT));
  const ncclUniqueId id = growth_id(me, fewer, 1, 1);
  OK(ncclCommGrow(fewer, 3, me->rank == 1 ? &id : NULL, -1, &whole, NULL));
  has_rank(me, whole, me->rank - 1, 3);
  CHECK(sum_over(me, whole, 1) == 3);
  OK(ncclCommDestroy(whole));
  OK(ncclCommDestroy(fewer));
  OK(ncclCommAbort(comm));
}

static void told_apart(struct client* me) {
  ncclComm_t comm = members_of(me, 2), more = comm;
  const ncclUniqueId id = growth_id(me, comm, 0, 1);
  if (comm) {
    FAILS(ncclInvalidUsage, ncclCommGrow(comm, 3 + me->rank, &id, -1, &more, NULL));
    CHECK(strstr(ncclGetLastError(NULL), "to 4 ranks") != NULL);
    CHECK(sum_over(me, comm, 1) == 2);
  } else {
    FAILS(ncclRemoteError, ncclCommGrow(NULL, 3, &id, 2, &more, NULL));
  }
  CHECK(more == NULL);
  OK(ncclCommDestroy(comm));
}

static void refused(struct client* me) {
  ncclComm_t comm = members_of(me, 1), more = NULL;
  ncclUniqueId id = growth_id(me, comm, 0, 1);
  const ncclUniqueId other = client_id(me, 2);
  FAILS(ncclInvalidArgument, ncclCommGetUniqueId(NULL, &id));
  FAILS(ncclInvalidArgument, ncclCommGetUniqueId(comm, NULL));
  FAILS(ncclInvalidArgument, ncclCommGrow(NULL, 2, NULL, -1, &more, NULL));
  FAILS(ncclInvalidArgument, ncclCommGrow(NULL, 2, &id, 2, &more, NULL));
  FAILS(ncclInvalidArgument, ncclCommGrow(NULL, 2, &other, 1, &more, NULL));
  FAILS(ncclInvalidArgument, ncclCommGrow(NULL, 2, &id, 1, NULL, NULL));
  FAILS(ncclInvalidArgument, ncclCommGrow(comm, 1, &id, -1, &more, NULL));
  CHECK(strstr(ncclGetLastError(NULL), "ncclCommGrow: nranks is 1") != NULL);
  FAILS(ncclInvalidArgument, ncclCommGrow(comm, 2, &id, 0, &more, NULL));
  FAILS(ncclInvalidArgument, ncclCommInitRank(&more, 2, id, 0));
  OK(ncclCommRevoke(comm, 0));
  FAILS(ncclInvalidUsage, ncclCommGetUniqueId(comm, &id));
  FAILS(ncclInvalidUsage, ncclCommGrow(comm, 2, &id, -1, &more, NULL));
  CHECK(more == NULL);
  OK(ncclCommDestroy(comm));
}

/* Sums of the process's ranks, the last of which are compressed or not on all of them. */
static void sums_are_compressed(struct client* me, const ncclComm_t* comms, int count, int expect) {
  float send[2][n], recv[2][n];
  for (int time = 0; time < 4; ++time) {
    OK(ncclGroupStart());
    for (int i = 0; i < count; ++i) {
      fill(send[i], 1);
      sum_up(me, comms[i], send[i], recv[i]);
    }
    OK(ncclGroupEnd());
  }
  for (int i = 0; i < count; ++i) CHECK((zeros_in(recv[i]) > 0) == expect);
}

/* What PITH_COMPRESS takes for the whole job does not change by a growth that one rank is refused,
 * nor by one that fails. The ranks of one process get the same communicator. */
static void grown_compressed(struct client* me) {
  ncclComm_t comms[2] = {NULL, NULL}, more[2] = {NULL, NULL};
  const ncclUniqueId first = client_id(me, 0);
  const int count = me->rank == 0 ? 2 : 1;
  if (me->rank == 0) {
    OK(ncclGroupStart());
    for (int r = 0; r < 2; ++r) OK(ncclCommInitRank(&comms[r], 3, first, r));
    OK(ncclGroupEnd());
  } else if (me->rank == 1) {
    OK(ncclCommInitRank(&comms[0], 3, first, 2));
  }
  if (me->rank < 2) {
    ncclUniqueId unused;
    if (me->rank == 1) OK(ncclCommGetUniqueId(comms[0], &unused));
    if (me->rank == 1)
      FAILS(ncclInvalidArgument, ncclCommGrow(comms[0], 5, &unused, 2, more, NULL));
    sums_are_compressed(me, comms, count, 1);
    OK(ncclGroupStart()); /* no rank gives an id */
    for (int i = 0; i < count; ++i) OK(ncclCommGrow(comms[i], 5, NULL, -1, &more[i], NULL));
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    sums_are_compressed(me, comms, count, 1);
  }
  const ncclUniqueId id = growth_id(me, comms[0], 1, 1);
  OK(ncclGroupStart());
  for (int i = 0; i < count; ++i) {
    const ncclUniqueId* given = me->rank == 0 ? NULL : &id;
    OK(ncclCommGrow(comms[i], 4, given, comms[i] ? -1 : 3, &more[i], NULL));
  }
  OK(ncclGroupEnd());
  sums_are_compressed(me, more, count, 1);
  if (me->rank < 2) sums_are_compressed(me, comms, count, 0);
  OK(ncclGroupStart());
  for (int i = 0; i < count; ++i) {
    OK(ncclCommDestroy(more[i]));
    OK(ncclCommDestroy(comms[i]));
  }
  OK(ncclGroupEnd());
}

int main(void) {
  const char* const environment[] = {"PITH_INIT_TIMEOUT=20", NULL};
  const char* const compressed[] = {"PITH_INIT_TIMEOUT=20",
                                    "PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K", NULL};
  client_run("grown", 5, environment, grown);
  client_run("grown in a group", 3, environment, grown_in_a_group);
  client_run("grown without blocking", 3, environment, grown_without_blocking);
  client_run("grown after a death", 4, environment, grown_after_a_death);
  client_run("told apart", 3, environment, told_apart);
  client_run("refused", 1, environment, refused);
  client_run("grown compressed", 3, compressed, grown_compressed);
  return 0;
}
