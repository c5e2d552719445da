/* The last error, teams and properties; and the less usual ways to a communicator. What is answered
 * without one: compare_with_nccl.py; what is refused: check_refused.py. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

static float sum_over(struct client* me, ncclComm_t comm, float mine) {
  float sum = 0;
  OK(ncclAllReduce(&mine, &sum, 1, ncclFloat32, ncclSum, comm, NULL));
  return sum;
}

enum { rounds = 20000 };

static void* fail_often(void* unused) {
  for (int i = 0; i < rounds; ++i) {
    if (i % 2 == 0) ncclCommCount(NULL, NULL);
    if (i % 2 == 1) ncclCommUserRank(NULL, NULL);
  }
  return unused;
}

/* It is the process's, and whole while other threads fail. */
static void last_error_of_threads(struct client* me) {
  const char* const one = "ncclCommCount: comm is NULL, expected a communicator";
  const char* const other = "ncclCommUserRank: comm is NULL, expected a communicator";
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, fail_often, NULL) == 0);
  for (int i = 0; i < 2 * rounds; ++i) {
    char now[1024];
    snprintf(now, sizeof now, "%s", ncclGetLastError(NULL));
    CHECK(now[0] == '\0' || strcmp(now, one) == 0 || strcmp(now, other) == 0);
  }
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(strcmp(ncclGetLastError(NULL), other) == 0);
}

static int is_team(ncclTeam_t team, int ranks, int rank, int stride) {
  return team.nRanks == ranks && team.rank == rank && team.stride == stride;
}

/* Nobody reaches another rank's memory: each is alone in its LSA team, and all are one rail. */
static void teams(struct client* me) {
  ncclComm_t comm = client_join(me);
  CHECK(is_team(ncclTeamWorld(comm), me->size, me->rank, 1));
  CHECK(is_team(ncclTeamLsa(comm), 1, 0, 1));
  CHECK(is_team(ncclTeamRail(comm), me->size, me->rank, 1));
  const ncclTeam_t odd = {(me->size + 1) / 2, me->rank / 2, 2};
  for (int r = 0; r < me->size; ++r) {
    CHECK(ncclTeamRankToWorld(comm, ncclTeamWorld(comm), r) == r);
    CHECK(ncclTeamRankToWorld(comm, ncclTeamRail(comm), r) == r);
    CHECK(ncclTeamRankToWorld(comm, odd, r) == me->rank + 2 * (r - me->rank / 2));
  }
  CHECK(ncclTeamRankToWorld(comm, ncclTeamLsa(comm), 0) == me->rank);
  CHECK(ncclTeamRankToLsa(comm, ncclTeamLsa(comm), 0) == 0);
  CHECK(ncclTeamRankToLsa(comm, ncclTeamWorld(comm), me->rank) == 0);

  ncclCommProperties_t properties;
  memset(&properties, 7, sizeof properties);
  FAILS(ncclInvalidArgument, ncclCommQueryProperties(comm, &properties));
  properties.size = sizeof properties;
  properties.magic = NCCL_API_MAGIC;
  properties.version = NCCL_VERSION_CODE;
  OK(ncclCommQueryProperties(comm, &properties));
  CHECK(properties.size == sizeof properties && properties.magic == NCCL_API_MAGIC);
  CHECK(properties.rank == me->rank && properties.nRanks == me->size);
  CHECK(properties.cudaDev == 0 && properties.nvmlDev == 0 && properties.nLsaTeams == me->size);
  CHECK(!properties.deviceApiSupport && !properties.multimemSupport && !properties.hostRmaSupport);
  CHECK(properties.ginType == 0 && properties.railedGinType == 0);
  FAILS(ncclInvalidArgument, ncclCommQueryProperties(comm, NULL));
  FAILS(ncclInvalidArgument, ncclCommQueryProperties(NULL, &properties));
  OK(ncclCommDestroy(comm));
}

/* Callers clean up before they abort. */
static void cleaned_up(struct client* me) {
  ncclComm_t comm = client_join(me);
  float value = 1;
  void* handle = NULL;
  ncclWindow_t window = NULL;
  OK(ncclCommRegister(comm, &value, sizeof value, &handle));
  OK(ncclCommWindowRegister(comm, &value, sizeof value, &window, NCCL_WIN_DEFAULT));
  client_meet(me, 0);
  OK(ncclCommRevoke(comm, 0));
  client_meet(me, 1);
  OK(ncclCommDeregister(comm, handle));
  OK(ncclCommWindowDeregister(comm, window));
  OK(ncclCommDestroy(comm));
}

/* Of several ids, one for some of the ranks each. */
static void several_ids(struct client* me) {
  enum { ids_max = 3 };
  for (int count = 2; count <= ids_max; ++count) {
    ncclUniqueId ids[ids_max];
    ncclComm_t comm = NULL;
    for (int i = 0; i < count; ++i) ids[i] = client_id(me, ids_max * (count - 2) + i);
    OK(ncclCommInitRankScalable(&comm, me->size, me->rank, count, ids, NULL));
    CHECK(sum_over(me, comm, (float)me->rank) == (float)(me->size * (me->size - 1) / 2));
    OK(ncclCommDestroy(comm));
  }
}

static void shrunk_after_revoke(struct client* me) {
  ncclComm_t comm = client_join(me), fewer = NULL;
  client_meet(me, 0);
  OK(ncclCommRevoke(comm, 0));
  client_meet(me, 1);
  int excluded[1] = {me->size - 1}, size = 0;
  if (me->rank != excluded[0]) {
    OK(ncclCommShrink(comm, excluded, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
    OK(ncclCommCount(fewer, &size));
    CHECK(size == me->size - 1 && sum_over(me, fewer, 2) == (float)(2 * size));
  }
  OK(ncclCommDestroy(fewer));
  client_meet(me, 2);
  OK(ncclCommDestroy(comm));
}

static ncclComm_t stuck;
static void* wait_for_the_dead(void* result) {
  float value = 1;
  *(ncclResult_t*)result = ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, stuck, NULL);
  return NULL;
}

/* NCCL_SHRINK_ABORT ends what waits for a rank that calls nothing. */
static void shrunk_with_abort(struct client* me) {
  ncclComm_t fewer = NULL;
  stuck = client_join(me);
  int excluded[1] = {me->size - 1};
  if (me->rank != excluded[0]) {
    ncclResult_t result = ncclSuccess;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wait_for_the_dead, &result) == 0);
    usleep(100 * 1000);
    OK(ncclCommShrink(stuck, excluded, 1, &fewer, NULL, NCCL_SHRINK_ABORT));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(result != ncclSuccess && result != ncclInProgress);
    CHECK(sum_over(me, fewer, 1) == (float)(me->size - 1));
  }
  OK(ncclCommDestroy(fewer));
  client_meet(me, 0);
  OK(ncclCommAbort(stuck));
}

int main(void) {
  client_run("last error of threads", 1, NULL, last_error_of_threads);
  client_run("teams", 1, NULL, teams);
  client_run("teams", 5, NULL, teams);
  client_run("cleaned up", 2, NULL, cleaned_up);
  client_run("several ids", 3, NULL, several_ids);
  client_run("shrink after revoke", 3, NULL, shrunk_after_revoke);
  client_run("shrink with abort", 3, NULL, shrunk_with_abort);
  return 0;
}
