/* How communicators come, split, shrink and end. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "communicators.h"

static void all_in_one_process(struct client* me) {
  enum { ranks = 4 };
  ncclComm_t comms[ranks];
  OK(ncclCommInitAll(comms, ranks, NULL));
  float send[ranks], recv[ranks];
  OK(ncclGroupStart());
  for (int r = 0; r < ranks; ++r) {
    send[r] = (float)(r + 1);
    OK(ncclAllReduce(&send[r], &recv[r], 1, ncclFloat32, ncclSum, comms[r], NULL));
  }
  OK(ncclGroupEnd());
  for (int r = 0; r < ranks; ++r) {
    int rank, count, device;
    CHECK(recv[r] == 10);
    OK(ncclCommUserRank(comms[r], &rank));
    OK(ncclCommCount(comms[r], &count));
    OK(ncclCommCuDevice(comms[r], &device));
    CHECK(rank == r && count == ranks && device == 0);
    OK(ncclCommDestroy(comms[r]));
  }
  const int once[2] = {0, 1}, twice[2] = {1, 1}, below[2] = {0, -1};
  FAILS(ncclInvalidUsage, ncclCommInitAll(comms, 2, twice));
  FAILS(ncclInvalidArgument, ncclCommInitAll(comms, 2, below));
  OK(ncclCommInitAll(comms, 2, once));
  for (int r = 0; r < 2; ++r) OK(ncclCommAbort(comms[r]));
}

/* Several ranks of a process, each on a thread of its own. */
struct rank_thread {
  struct client* me;
  ncclUniqueId id;
  int rank, size;
  pthread_t thread;
};

static void* run_rank(void* raw) {
  struct rank_thread* const one = raw;
  struct client* const me = one->me;
  ncclComm_t comm = NULL;
  OK(ncclCommInitRank(&comm, one->size, one->id, one->rank));
  for (int i = 0; i < 100; ++i) {
    const float sum = (float)(one->size * (one->size - 1) / 2 + one->size * i);
    CHECK(sum_over(me, comm, (float)(one->rank + i)) == sum);
  }
  OK(ncclCommDestroy(comm));
  return NULL;
}

static void in_threads(struct client* me) {
  enum { threads = 3 };
  struct rank_thread ranks[threads];
  const ncclUniqueId id = client_id(me, 0);
  for (int t = 0; t < threads; ++t) {
    ranks[t] = (struct rank_thread){me, id, threads * me->rank + t, threads * me->size, 0};
    CHECK(pthread_create(&ranks[t].thread, NULL, run_rank, &ranks[t]) == 0);
  }
  for (int t = 0; t < threads; ++t) CHECK(pthread_join(ranks[t].thread, NULL) == 0);
}

static void configured(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL;
  const ncclUniqueId id = client_id(me, 0);
  config.magic = 1;
  FAILS(ncclInvalidArgument, ncclCommInitRankConfig(&comm, me->size, id, me->rank, &config));
  config.magic = NCCL_API_MAGIC;
  config.blocking = 2;
  FAILS(ncclInvalidArgument, ncclCommInitRankConfig(&comm, me->size, id, me->rank, &config));
  config.blocking = 1;
  config.minCTAs = 4; /* without a maximum */
  FAILS(ncclInvalidArgument, ncclCommInitRankConfig(&comm, me->size, id, me->rank, &config));
  config.maxCTAs = 8;
  config.CTAPolicy = 3; /* two policies */
  FAILS(ncclInvalidArgument, ncclCommInitRankConfig(&comm, me->size, id, me->rank, &config));
  CHECK(strstr(ncclGetLastError(NULL), "CTAPolicy is 3") != NULL);
  config.CTAPolicy = 2;
  config.commName = "named";
  config.nvlinkCentricSched = 9; /* of a version that the caller says not to know */
  config.version = 22700;
  /* A later caller's is longer. */
  struct {
    ncclConfig_t config;
    int more[4];
  } longer = {config, {0, 0, 0, 0}};
  longer.config.size = sizeof longer;
  OK(ncclCommInitRankScalable(&comm, me->size, me->rank, 1, (ncclUniqueId*)&id, &longer.config));
  CHECK(sum_over(me, comm, 1) == (float)me->size);
  OK(ncclCommDestroy(comm));
}

/* A handle that no communicator came of is NULL, whatever was in it. */
static void refused_handles(struct client* me) {
  const int wrong[][2] = {{2, -1}, {2, 2}, {0, 0}, {-3, 0}}; /* ranks, rank */
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER, bad = NCCL_CONFIG_INITIALIZER;
  bad.splitShare = 2;
  ncclUniqueId id, garbage;
  OK(ncclGetUniqueId(&id));
  memset(&garbage, 7, sizeof garbage);
  const ncclComm_t old = (ncclComm_t)(uintptr_t)0x1000;
  ncclComm_t comm = old;
#define LEAVES_NULL(call)               \
  do {                                  \
    comm = old;                         \
    FAILS(ncclInvalidArgument, (call)); \
    CHECK(comm == NULL);                \
  } while (0)
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    const int ranks = wrong[i][0], rank = wrong[i][1];
    LEAVES_NULL(ncclCommInitRank(&comm, ranks, id, rank));
    LEAVES_NULL(ncclCommInitRankConfig(&comm, ranks, id, rank, &config));
    LEAVES_NULL(ncclCommInitRankScalable(&comm, ranks, rank, 1, &id, &config));
    CHECK(strncmp(ncclGetLastError(NULL), "ncclCommInitRankScalable: ", 26) == 0);
    OK(ncclGroupStart());
    LEAVES_NULL(ncclCommInitRank(&comm, ranks, id, rank));
    FAILS(ncclInvalidArgument, ncclGroupEnd());
    FAILS(ncclInvalidArgument, ncclCommInitRank(NULL, ranks, id, rank));
  }
  LEAVES_NULL(ncclCommInitRank(&comm, 1, garbage, 0));
  LEAVES_NULL(ncclCommInitRankConfig(&comm, 1, id, 0, &bad));
  LEAVES_NULL(ncclCommInitRankScalable(&comm, 1, 0, 0, NULL, NULL));
  ncclComm_t parent = NULL;
  OK(ncclCommInitRank(&parent, 1, id, 0));
  LEAVES_NULL(ncclCommSplit(parent, 0, 0, &comm, &bad));
  comm = old; /* and as NCCL has it, what never was a parent's is left alone */
  FAILS(ncclInvalidArgument, ncclCommSplit(NULL, 0, 0, &comm, NULL));
  CHECK(comm == old);
  OK(ncclCommDestroy(parent));
#undef LEAVES_NULL
}

static void in_the_background(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = NULL, child = NULL;
  const ncclResult_t begun =
      ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config);
  CHECK(begun == ncclInProgress || begun == ncclSuccess);
  CHECK(comm != NULL);
  CHECK(settle(comm) == ncclSuccess);
  float send = 1, recv = 0;
  ncclResult_t result = ncclAllReduce(&send, &recv, 1, ncclFloat32, ncclSum, comm, NULL);
  CHECK(result == ncclInProgress || result == ncclSuccess);
  CHECK(settle(comm) == ncclSuccess && recv == (float)me->size);
  result = ncclCommSplit(comm, me->rank % 2, me->rank, &child, NULL);
  CHECK(result == ncclInProgress || result == ncclSuccess);
  CHECK(settle(comm) == ncclSuccess && child != NULL);
  CHECK(settle(child) == ncclSuccess);
  result = ncclCommFinalize(child);
  CHECK(result == ncclInProgress || result == ncclSuccess);
  CHECK(settle(child) == ncclSuccess);
  OK(ncclCommDestroy(child));
  OK(ncclCommDestroy(comm));
}

/* NCCL_COMM_BLOCKING = 0, which goes before what the program says. */
static void blocking_by_environment(struct client* me) {
  enum { others = 4 };
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ncclComm_t comm = NULL, made[others] = {NULL, NULL, NULL, NULL};
  ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config);
  CHECK(settle(comm) == ncclSuccess);
  float send = 1, sum = 0, sums[2];
  if (me->rank != 0) client_meet(me, 0);
  const ncclResult_t begun = ncclAllReduce(&send, &sum, 1, ncclFloat32, ncclSum, comm, NULL);
  CHECK(begun == ncclInProgress || (begun == ncclSuccess && me->rank != 0));
  if (me->rank == 0) client_meet(me, 0); /* nobody else has called before */
  CHECK(settle(comm) == ncclSuccess && sum == (float)me->size);

  int last[1] = {me->size - 1};
  if (me->rank != last[0]) ncclCommShrink(comm, last, 1, &made[3], &config, NCCL_SHRINK_DEFAULT);
  CHECK(settle(comm) == ncclSuccess && (me->rank == last[0] || settle(made[3]) == ncclSuccess));
  ncclCommSplit(comm, 0, me->rank, &made[2], &config);
  CHECK(settle(comm) == ncclSuccess && settle(made[2]) == ncclSuccess);
  OK(ncclCommInitAll(made, 2, NULL));
  ncclComm_t* const beside[] = {&comm, &made[2], &made[3]};
  for (int i = 0; i < 3 && *beside[i];
       ++i) { /* a blocking one is refused in a group with another */
    int size = 0;
    OK(ncclCommCount(*beside[i], &size));
    OK(ncclGroupStart());
    OK(ncclAllReduce(&send, &sum, 1, ncclFloat32, ncclSum, *beside[i], NULL));
    for (int r = 0; r < 2; ++r) {
      OK(ncclAllReduce(&send, &sums[r], 1, ncclFloat32, ncclSum, made[r], NULL));
    }
    const ncclResult_t ended = ncclGroupEnd();
    CHECK(ended == ncclSuccess || ended == ncclInProgress);
    CHECK(settle(*beside[i]) == ncclSuccess && sum == (float)size);
    for (int r = 0; r < 2; ++r) CHECK(settle(made[r]) == ncclSuccess && sums[r] == 2);
  }
  for (int i = 0; i < others; ++i) OK(ncclCommDestroy(made[i]));
  OK(ncclCommDestroy(comm));
}

static void children(struct client* me) {
  ncclComm_t comm = client_join(me), half = NULL, none = NULL, fewer = NULL;
  int rank, count;
  OK(ncclCommSplit(comm, me->rank % 2, -me->rank, &half, NULL)); /* in reverse order */
  OK(ncclCommCount(half, &count));
  OK(ncclCommUserRank(half, &rank));
  CHECK(count == (me->size + 1 - me->rank % 2) / 2);
  CHECK(rank == count - 1 - me->rank / 2);
  OK(ncclCommSplit(comm, me->rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, me->rank, &none, NULL));
  CHECK(me->rank == 0 ? none == NULL : none != NULL);
  FAILS(ncclInvalidArgument, ncclCommSplit(comm, -5, 0, &fewer, NULL));
  int excluded[1] = {0};
  FAILS(ncclInvalidArgument, ncclCommShrink(comm, excluded, 0, &fewer, NULL, 0));
  if (me->rank != 0) {
    OK(ncclCommShrink(comm, excluded, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
    OK(ncclCommUserRank(fewer, &rank));
    CHECK(rank == me->rank - 1);
    CHECK(sum_over(me, fewer, 1) == (float)(me->size - 1));
    OK(ncclCommDestroy(fewer));
    OK(ncclCommDestroy(none));
  } else {
    FAILS(ncclInvalidArgument, ncclCommShrink(comm, excluded, 1, &fewer, NULL, 0));
  }
  OK(ncclCommFinalize(comm));
  FAILS(ncclInvalidArgument, ncclCommFinalize(comm));
  int ranks, device; /* what it is can still be asked */
  OK(ncclCommCount(comm, &ranks));
  OK(ncclCommUserRank(comm, &rank));
  OK(ncclCommCuDevice(comm, &device));
  CHECK(ranks == me->size && rank == me->rank && device == 0);
  OK(ncclCommDestroy(comm));
  const float mine = me->rank % 2 == 0 ? 1.0f : 10.0f; /* the child outlives its parent */
  CHECK(sum_over(me, half, mine) == mine * (float)count);
  OK(ncclCommDestroy(half));
}

static void revoked(struct client* me) {
  ncclComm_t comm = client_join(me), again = NULL;
  ncclResult_t state = ncclInternalError;
  CHECK(sum_over(me, comm, 1) == (float)me->size);
  client_meet(me, 0);
  FAILS(ncclInvalidArgument, ncclCommRevoke(comm, 1));
  OK(ncclCommRevoke(comm, 0));
  client_meet(me, 1);
  float value = 1;
  FAILS(ncclInvalidUsage, ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, NULL));
  FAILS(ncclInvalidArgument, ncclCommFinalize(comm));
  FAILS(ncclInvalidArgument, ncclCommRevoke(comm, 0));
  OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess);
  OK(ncclCommSplit(comm, 0, me->rank, &again, NULL));
  CHECK(sum_over(me, again, 2) == (float)(2 * me->size));
  OK(ncclCommFinalize(again));
  FAILS(ncclInvalidArgument, ncclCommRevoke(again, 0));
  OK(ncclCommDestroy(again));
  OK(ncclCommDestroy(comm));
}

/* The same in the background: the new communicator is there when the old one says success. */
static void revoked_in_the_background(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = NULL, again = NULL, grouped = NULL;
  ncclResult_t result =
      ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config);
  CHECK(result == ncclInProgress || result == ncclSuccess);
  CHECK(settle(comm) == ncclSuccess);
  client_meet(me, 0);
  OK(ncclCommRevoke(comm, 0));
  client_meet(me, 1);
  CHECK(settle(comm) == ncclSuccess);
  result = ncclCommSplit(comm, me->rank / 2, -me->rank, &again, NULL);
  CHECK(result == ncclInProgress || result == ncclSuccess);
  CHECK(settle(comm) == ncclSuccess && again != NULL && settle(again) == ncclSuccess);
  int rank, count;
  OK(ncclCommCount(again, &count));
  OK(ncclCommUserRank(again, &rank));
  CHECK(count == (me->rank < 2 ? 2 : me->size - 2) && rank == (me->rank < 2 ? 1 - me->rank : 0));
  OK(ncclGroupStart());
  OK(ncclCommSplit(comm, 0, me->rank, &grouped, NULL));
  result = ncclGroupEnd();
  CHECK(result == ncclInProgress || result == ncclSuccess);
  CHECK(settle(comm) == ncclSuccess && grouped != NULL);
  float send = 1, recv = 0;
  result = ncclAllReduce(&send, &recv, 1, ncclFloat32, ncclSum, grouped, NULL);
  CHECK(result == ncclInProgress || result == ncclSuccess);
  CHECK(settle(grouped) == ncclSuccess && recv == (float)me->size);
  OK(ncclCommDestroy(grouped));
  OK(ncclCommDestroy(again));
  OK(ncclCommDestroy(comm));
}

static ncclComm_t watched;
static int watching;
static void* watch(void* unused) {
  ncclResult_t state;
  while (__atomic_load_n(&watching, __ATOMIC_ACQUIRE) == 1) {
    if (ncclCommGetAsyncError(watched, &state) != ncclSuccess) {
      __atomic_store_n(&watching, -1, __ATOMIC_RELEASE);
    }
    usleep(50);
  }
  return unused;
}

/* As PyTorch has it: a thread of its own asks all the time how the communicator is. */
static void watchdog(struct client* me) {
  for (int blocking = 0; blocking < 2; ++blocking) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    ncclCommInitRankConfig(&watched, me->size, client_id(me, blocking), me->rank, &config);
    CHECK(settle(watched) == ncclSuccess);
    pthread_t thread;
    watching = 1;
    CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
    for (int i = 0; i < 300; ++i) {
      float send = 1, recv = 0;
      ncclResult_t result = ncclAllReduce(&send, &recv, 1, ncclFloat32, ncclSum, watched, NULL);
      CHECK(result == ncclSuccess || (result == ncclInProgress && !blocking));
      CHECK(settle(watched) == ncclSuccess && recv == (float)me->size);
    }
    CHECK(__atomic_exchange_n(&watching, 0, __ATOMIC_ACQ_REL) == 1);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(ncclCommDestroy(watched));
  }
}

static ncclComm_t aborted;
static void* abort_soon(void* unused) {
  usleep(300 * 1000);
  ncclCommAbort(aborted);
  return unused;
}

/* Rank 0 waits for a call that the others never make, until another thread aborts. */
static void aborts(struct client* me) {
  aborted = client_join(me);
  float value = 1;
  if (me->rank == 0) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, abort_soon, NULL) == 0);
    FAILS(ncclRemoteError, ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, aborted, NULL));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strstr(ncclGetLastError(NULL), "rank 0 aborted") != NULL);
    return;
  }
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) {
    OK(ncclCommGetAsyncError(aborted, &state)); /* as a watchdog does */
    usleep(1000);
  }
  CHECK(state == ncclRemoteError);
  CHECK(strstr(ncclGetLastError(NULL), "rank 0 aborted") != NULL);
  FAILS(ncclRemoteError, ncclCommFinalize(aborted)); /* each time: it is not finalized */
  FAILS(ncclRemoteError, ncclCommFinalize(aborted));
  OK(ncclGroupStart());
  OK(ncclCommAbort(aborted));
  OK(ncclGroupEnd());
}

static void by_address(struct client* me) {
  for (int round = 0; round < 2; ++round) {
    ncclUniqueId id; /* everyone makes its own, of the same address */
    ncclComm_t comm = NULL;
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&comm, me->size, id, me->rank));
    CHECK(sum_over(me, comm, 1) == (float)me->size);
    OK(ncclCommDestroy(comm));
  }
  setenv("NCCL_COMM_ID", "nowhere", 1);
  ncclUniqueId id;
  FAILS(ncclInvalidArgument, ncclGetUniqueId(&id));
}

/* Where other hosts could come, too, there must be a secret, or the user's word. */
static void by_public_address(struct client* me) {
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  const ncclResult_t made = ncclGetUniqueId(&id);
  CHECK((made == ncclSuccess ? ncclCommInitRank(&comm, 1, id, 0) : made) == ncclInvalidUsage);
  CHECK(strstr(ncclGetLastError(NULL), "PITH_SECRET") != NULL);
  CHECK(strstr(ncclGetLastError(NULL), "there is no secret") != NULL);
}

static void wrong_settings(struct client* me) {
  ncclComm_t comm = NULL;
  FAILS(ncclInvalidUsage, ncclCommInitAll(&comm, 1, NULL));
  CHECK(strstr(ncclGetLastError(NULL), "NCCL_ALGO") != NULL);
  setenv("NCCL_ALGO", "allreduce:^ring;broadcast:ring", 1);
  OK(ncclCommInitAll(&comm, 1, NULL));
  OK(ncclCommDestroy(comm));
}

/* As ranks say that they are on other hosts, they share no memory, and calls take longer. */
static void by_host_id(struct client* me, int apart) {
  char text[16384], id[16];
  client_log();
  snprintf(id, sizeof id, "host%d", apart ? me->rank : 0);
  setenv("NCCL_HOSTID", id, 1);
  ncclComm_t comm = client_join(me);
  CHECK(sum_over(me, comm, 1) == (float)me->size);
  float value = 1;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  OK(ncclGroupStart());
  OK(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, NULL));
  OK(ncclGroupSimulateEnd(&info));
  CHECK(info.estimatedTime > 0 && (info.estimatedTime > 15) == apart);
  ncclComm_t child = NULL;
  OK(ncclCommSplit(comm, 0, -me->rank, &child, NULL));
  CHECK(sum_over(me, child, 1) == (float)me->size);
  OK(ncclCommDestroy(child));
  OK(ncclCommDestroy(comm));
  client_take_log(me, text, sizeof text);
  if (me->rank > 0) return; /* rank 0 tells */
  CHECK(client_times_in(text, apart ? "on 3 hosts, 3 pairs by tcp" : "on 1 host, 3 pairs by shm") ==
        1);
}
static void on_other_hosts(struct client* me) { by_host_id(me, 1); }
static void on_one_host(struct client* me) { by_host_id(me, 0); }

int main(void) {
  client_run("InitAll", 1, NULL, all_in_one_process);
  client_run("ranks in threads", 2, NULL, in_threads);
  client_run("config", 2, NULL, configured);
  client_run("refused handles", 1, NULL, refused_handles);
  client_run("blocking = 0", 4, NULL, in_the_background);
  const char* no_blocking[] = {"NCCL_COMM_BLOCKING=0", NULL};
  client_run("NCCL_COMM_BLOCKING", 3, no_blocking, blocking_by_environment);
  client_run("watchdog", 2, NULL, watchdog);
  client_run("split and shrink", 5, NULL, children);
  client_run("revoke", 3, NULL, revoked);
  client_run("revoke, blocking = 0", 3, NULL, revoked_in_the_background);
  client_run("abort", 2, NULL, aborts);
  /* Below the ports that the kernel gives to whoever calls somebody. */
  const int port = 20000 + getpid() % 12000;
  char address[64];
  snprintf(address, sizeof address, "NCCL_COMM_ID=127.0.0.1:%d", port);
  const char* by_port[] = {address, NULL};
  client_run("NCCL_COMM_ID", 3, by_port, by_address);
  const char* public[] = {"NCCL_COMM_ID=192.0.2.1:20001", NULL};
  client_run("NCCL_COMM_ID of other hosts", 1, public, by_public_address);
  client_run("other hosts by NCCL_HOSTID", 3, NULL, on_other_hosts);
  client_run("one host by NCCL_HOSTID", 3, NULL, on_one_host);
  const char* wrong[] = {"NCCL_ALGO=ring,nonsense", NULL};
  client_run("NCCL_ALGO", 1, wrong, wrong_settings);
  return 0;
}
