/* Sums that PITH_COMPRESS has made host by host, what is inside hosts by another NCCL: the fake,
 * given as the first argument, on the stub driver, the second one. Two ranks have one PITH_HOST_ID,
 * and count as a host. */
#include <glob.h>
#include <string.h>
#include <unistd.h>

#include "driver.h"

enum { layers = 3, n = 40000, steps = 12, places = 2 };
enum kind { reduce_scatter, all_gather, reduce, broadcast }; /* of fake_nccl_issued */

static const char* other;

/* Of the calls of this rank that went to the other library's communicator of its host. */
static int issued(struct client* me, enum kind kind) {
  void* const library = dlopen(other, RTLD_NOW);
  CHECK(library != NULL);
  int (*count)(int) = NULL;
  *(void**)&count = dlsym(library, "fake_nccl_issued");
  CHECK(count != NULL);
  return count((int)kind);
}

/* Hosts of two ranks each. */
static ncclComm_t join_by_host(struct client* me) {
  char name[32];
  snprintf(name, sizeof name, "host-%d", me->rank / places);
  setenv("PITH_HOST_ID", name, 1);
  use_device(me);
  return client_join(me);
}

/* The same layers on a device, and on the host, where hierarchy=host is Pith's own alone: they get
 * the same sums, at all ranks. */
static void train(struct client* me, int grouped) {
  float *gradient[layers], *sum[layers];
  static float host_gradient[layers][n], host_sum[layers][n];
  ncclComm_t comm = join_by_host(me), on_host = NULL;
  void* const stream = new_stream(me);
  OK(ncclCommSplit(comm, 0, me->rank, &on_host, NULL));
  for (int l = 0; l < layers; ++l) {
    gradient[l] = floats_of(me, n, 0);
    sum[l] = l == 0 ? gradient[l] : floats_of(me, n, 0); /* one is summed in place */
  }
  int compressed = 0;
  for (int s = 0; s < steps; ++s) {
    const ncclRedOp_t op = s % 3 == 2 ? ncclAvg : ncclSum;
    for (int l = 0; l < layers; ++l) {
      for (int i = 0; i < n; ++i) gradient[l][i] = host_gradient[l][i] = gradient_of(me, l, s, i);
    }
    if (grouped) OK(ncclGroupStart());
    for (int l = 0; l < layers; ++l) {
      OK(ncclAllReduce(gradient[l], sum[l], n, ncclFloat32, op, comm, stream));
    }
    if (grouped) OK(ncclGroupEnd());
    if (grouped) OK(ncclGroupStart());
    for (int l = 0; l < layers; ++l) {
      OK(ncclAllReduce(host_gradient[l], host_sum[l], n, ncclFloat32, op, on_host, NULL));
    }
    if (grouped) OK(ncclGroupEnd());
    CHECK(cuda.synchronize(stream) == 0);
    for (int l = 0; l < layers; ++l) {
      CHECK(memcmp(sum[l], host_sum[l], n * sizeof(float)) == 0);
      compressed += zeros_among(sum[l], n) > n / 4;
    }
  }
  CHECK(compressed >= layers * (steps - 5) && compressed <= layers * (steps - 3));
  CHECK(issued(me, reduce_scatter) == layers * steps && issued(me, all_gather) == layers * steps);
  CHECK(issued(me, reduce) == 0 && issued(me, broadcast) == 0);
  OK(ncclCommDestroy(on_host));
  OK(ncclCommDestroy(comm));
}
static void one_by_one(struct client* me) { train(me, 0); }
static void in_groups(struct client* me) { train(me, 1); }

/* Whose elements are not a multiple of the ranks, nor a row of them of the device's: the last rank
 * of a host has what is left. Each gives ones, so what an element gets is what has come of it since
 * it was sent last. */
static void odd_count(struct client* me) {
  enum { odd = n + 5 };
  static float due[odd];
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  float *const ones = floats_of(me, odd, 0), *const sum = floats_of(me, odd + 1, 0);
  for (int i = 0; i < odd; ++i) ones[i] = 1;
  sum[odd] = 77;
  int zeros = 0;
  for (int s = 0; s < steps; ++s) {
    OK(ncclAllReduce(ones, sum, odd, ncclFloat32, ncclSum, comm, stream));
    CHECK(cuda.synchronize(stream) == 0);
    for (int i = 0; i < odd; ++i) {
      due[i] += (float)me->size;
      CHECK(sum[i] == 0 || sum[i] == due[i]);
      zeros += sum[i] == 0;
      if (sum[i] != 0) due[i] = 0;
      CHECK(ones[i] == 1);
    }
  }
  CHECK(zeros > n && sum[odd] == 77);
  CHECK(issued(me, reduce) == steps && issued(me, broadcast) == steps);
  OK(ncclCommDestroy(comm));
}

/* Bytes that this rank has sent in communicators of so many ranks, by its traces. */
static long sent(struct client* me, const char* pattern, int ranks) {
  char header[32], line[4096];
  glob_t found;
  long bytes = 0;
  snprintf(header, sizeof header, "\"ranks\":%d,", ranks);
  CHECK(glob(pattern, 0, NULL, &found) == 0);
  for (size_t f = 0; f < found.gl_pathc; ++f) {
    FILE* const file = fopen(found.gl_pathv[f], "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    const int counts = strstr(line, header) != NULL;
    while (fgets(line, sizeof line, file)) {
      const char* const at = strstr(line, "\"bytes\":");
      if (counts && at && strstr(line, "\"op\":\"send\"")) bytes += atol(at + strlen("\"bytes\":"));
    }
    fclose(file);
  }
  globfree(&found);
  return bytes;
}

/* Between hosts, pairs of a part go; among all ranks, votes. */
static void traffic(struct client* me) {
  char prefix[64], pattern[96];
  snprintf(prefix, sizeof prefix, "/tmp/pith-host-plan-%d", (int)getpid());
  setenv("PITH_TRACE", prefix, 1);
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  float *const gradient = floats_of(me, n, 0), *const sum = floats_of(me, n, 0);
  for (int s = 0; s < steps; ++s) {
    for (int i = 0; i < n; ++i) gradient[i] = gradient_of(me, 0, s, i);
    OK(ncclAllReduce(gradient, sum, n, ncclFloat32, ncclSum, comm, stream));
    CHECK(cuda.synchronize(stream) == 0);
  }
  OK(ncclCommDestroy(comm));
  snprintf(pattern, sizeof pattern, "%s.*", prefix);
  const long part = n / places * (long)sizeof(float), pairs = part / 100 * 2;
  const long between = sent(me, pattern, me->size / places);
  CHECK(between >= 2 * part && between <= 2 * part + (steps - 2) * (pairs + 500));
  CHECK(sent(me, pattern, me->size) < 2000 * steps);
  glob_t traces;
  CHECK(glob(pattern, 0, NULL, &traces) == 0);
  for (size_t f = 0; f < traces.gl_pathc; ++f) unlink(traces.gl_pathv[f]);
  globfree(&traces);
}

/* What is not the plan's goes as it does without: sums that are short, not covered, or averages of
 * f16. */
static void other_sums(struct client* me) {
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  void *const send = floats_of(me, n, 0), *const recv = floats_of(me, n, 0);
  const unsigned char* const first = recv;
  OK(ncclAllReduce(send, recv, 100, ncclFloat32, ncclSum, comm, stream));
  CHECK(cuda.synchronize(stream) == 0 && *first == 0x5a); /* the fake's mark */
  OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclMax, comm, stream));
  OK(ncclAllReduce(send, recv, n, ncclFloat16, ncclAvg, comm, stream));
  CHECK(cuda.synchronize(stream) == 0 && *first == 0);
  CHECK(issued(me, reduce_scatter) == 0);
  OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, NULL));
  CHECK(cuda.synchronize((void*)1) == 0 && issued(me, reduce_scatter) == 1);
  OK(ncclCommDestroy(comm));
}

/* Compressed sums, all of which are Pith's. */
static void sums_without(struct client* me) {
  char text[32768];
  client_log();
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  float *const send = floats_of(me, n, 0), *const recv = floats_of(me, n, 0);
  for (int i = 0; i < n; ++i) send[i] = 1;
  for (int s = 0; s < steps; ++s) {
    OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
    CHECK(cuda.synchronize(stream) == 0);
  }
  CHECK(zeros_among(recv, n) > 0 && issued(me, reduce_scatter) == 0);
  OK(ncclCommDestroy(comm));
  client_take_log(me, text, sizeof text);
  if (me->rank == 0) me->shared->note[0][0] = client_times_in(text, "are Pith's alone");
}
static void unlike_hosts(struct client* me) {
  sums_without(me);
  if (me->rank == 0) CHECK(me->shared->note[0][0] == 1);
}
static void not_listed(struct client* me) {
  sums_without(me);
  if (me->rank == 0) CHECK(me->shared->note[0][0] == 0);
}

/* Five sums, in one of which the last rank's process ends, when its host has been summed: some wait
 * for it between hosts, its neighbour in the other library. All hear of it. The stream is waited
 * for after each of the first `waited`. */
static ncclResult_t sums_with_an_end(struct client* me, const char* ends_after, int waited,
                                     ncclComm_t* comm, void** stream) {
  if (me->rank == me->size - 1) setenv("FAKE_NCCL_ENDS_AFTER", ends_after, 1);
  *comm = join_by_host(me);
  *stream = new_stream(me);
  float *const send = floats_of(me, n, 0), *const recv = floats_of(me, n, 0);
  for (int i = 0; i < n; ++i) send[i] = 1;
  for (int s = 0; s < 5; ++s) {
    OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, *comm, *stream));
    if (s < waited) CHECK(cuda.synchronize(*stream) == 0);
  }
  if (me->rank == me->size - 1) pause();
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) OK(ncclCommGetAsyncError(*comm, &state));
  return state;
}

/* Who aborts has streams that go on. */
static void ends_in_sum(struct client* me) {
  ncclComm_t comm = NULL;
  void* stream = NULL;
  CHECK(sums_with_an_end(me, "5", 4, &comm, &stream) == ncclRemoteError);
  OK(ncclCommAbort(comm));
  CHECK(cuda.synchronize(stream) == 0);
}

/* Nobody aborts: what has failed is not waited for. */
static void destroyed_after_end(struct client* me) {
  ncclComm_t comm = NULL;
  void* stream = NULL;
  sums_with_an_end(me, "4", 3, &comm, &stream);
  OK(ncclCommDestroy(comm));
  CHECK(cuda.synchronize(stream) == 0);
}

/* A call of the whole communicator is stuck in the other library, whose aborts wait for the device,
 * with a sum behind it. */
static void stuck_there(struct client* me) {
  setenv("FAKE_NCCL_STUCK", "1", 1);
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  float *const send = floats_of(me, n, 0), *const recv = floats_of(me, n, 0);
  OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
  CHECK(cuda.synchronize(stream) == 0);
  OK(ncclBroadcast(send, recv, n, ncclFloat32, 0, comm, stream));
  OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
  client_meet(me, 0);
  OK(ncclCommAbort(comm));
  CHECK(cuda.synchronize(stream) == 0);
}

/* Vectors from one place, of which the first ranks' parts are alike, are told apart by all. */
static void near_counts(struct client* me) {
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  float *const send = floats_of(me, n + 1, 0), *const recv = floats_of(me, n + 1, 0);
  int compressed = 0;
  for (int i = 0; i <= n; ++i) send[i] = 1;
  for (int s = 0; s < 4 * steps; ++s) {
    OK(ncclAllReduce(send, recv, (size_t)(n + s % 2), ncclFloat32, ncclSum, comm, stream));
    CHECK(cuda.synchronize(stream) == 0);
    compressed += zeros_among(recv, n) > n / 4;
  }
  CHECK(compressed >= 3 * steps);
  OK(ncclCommDestroy(comm));
}

/* One host's vectors are longer, by what only the last rank of a host sums: the others, whose parts
 * are alike, hear of it, too. */
static void parts_differ(struct client* me) {
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  float *const send = floats_of(me, n + 1, 0), *const recv = floats_of(me, n + 1, 0);
  const size_t count = n + (size_t)(me->rank / places);
  OK(ncclAllReduce(send, recv, count, ncclFloat32, ncclSum, comm, stream));
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclInvalidUsage);
  OK(ncclCommAbort(comm));
  CHECK(cuda.synchronize(stream) == 0);
}

/* Nobody synchronises: the communicator's end waits for all of it. */
static void without_synchronising(struct client* me) {
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  float *const send = floats_of(me, n, 0), *const recv = floats_of(me, n, 0);
  for (int i = 0; i < n; ++i) send[i] = 1;
  for (int s = 0; s < steps; ++s) {
    OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
  }
  if (me->rank % 2 == 0) OK(ncclCommFinalize(comm));
  OK(ncclCommDestroy(comm));
  CHECK(cuda.synchronize(stream) == 0);
  CHECK(zeros_among(recv, n) > 0 && zeros_among(recv, n) < n);
}

/* Who revokes it ends what runs at its host's other rank, too: a sum that not all have joined. */
static void revoked(struct client* me) {
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  float *const send = floats_of(me, n, 0), *const recv = floats_of(me, n, 0);
  if (me->rank != 1) OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
  client_meet(me, 0);
  OK(ncclCommRevoke(comm, 0));
  CHECK(cuda.synchronize(stream) == 0);
  OK(ncclCommDestroy(comm));
}

/* A sum that one rank has not been able to make in the other library ends at all that have begun
 * it, without their doing, but for what waits there. */
static void refused_there(struct client* me) {
  ncclComm_t comm = join_by_host(me);
  void* const stream = new_stream(me);
  float *const send = floats_of(me, 2 * n, 0), *const recv = floats_of(me, 2 * n, 0);
  if (me->rank == 2) setenv("FAKE_NCCL_REFUSES", "1", 1);
  if (me->rank == 2) client_meet(me, 0);
  const ncclResult_t result = ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream);
  CHECK(result == (me->rank == 2 ? ncclSystemError : ncclSuccess));
  if (me->rank != 2) client_meet(me, 0);
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) OK(ncclCommGetAsyncError(comm, &state));
  if (me->rank < places) CHECK(cuda.synchronize(stream) == 0);
  client_meet(me, 1);
  OK(ncclCommAbort(comm));
  CHECK(cuda.synchronize(stream) == 0);
}

/* What the fake's ranks share is a case's own. */
static char memory[64];
static void run(const char* name, int hosts, const char* const* environment, client_body body) {
  client_run(name, hosts * places, environment, body);
  unlink(memory);
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  other = arguments[1];
  driver_path = arguments[2];
  char fake[1024], shared[96];
  snprintf(fake, sizeof fake, "PITH_NCCL_FALLBACK=%s", other);
  snprintf(memory, sizeof memory, "/tmp/pith-fake-nccl-%d", (int)getpid());
  snprintf(shared, sizeof shared, "FAKE_NCCL_SHARED=%s", memory);
  const char* const sparse = "PITH_COMPRESS=topk:density=0.01,hierarchy=host,bypass=never,min=16K";
  const char* const schemes[] = {
      "PITH_COMPRESS=topk:density=0.25,hierarchy=host,bypass=never,min=16K",
      "PITH_COMPRESS=ar-topk:density=0.2,hierarchy=host,bypass=never,min=16K",
  };
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; ++i) {
    const char* environment[] = {fake, shared, schemes[i], NULL};
    run(schemes[i], 2, environment, one_by_one);
  }
  const char* environment[] = {fake, shared, sparse, NULL};
  run("in groups", 2, (const char*[]){fake, shared, schemes[0], NULL}, in_groups);
  run("odd count", 2, environment, odd_count);
  run("three hosts", 3, environment, odd_count);
  run("traffic", 2, environment, traffic);
  run("other sums", 2, environment, other_sums);
  client_run("unlike hosts", 3, environment, unlike_hosts);
  run("not listed", 2,
      (const char*[]){fake, shared, sparse, "PITH_NCCL_FALLBACK_FOR=reducescatter", NULL},
      not_listed);
  run("ends in a sum", 2, environment, ends_in_sum);
  run("destroyed after an end", 2, environment, destroyed_after_end);
  run("stuck there", 2, environment, stuck_there);
  run("near counts", 2, environment, near_counts);
  run("parts differ", 2, environment, parts_differ);
  run("without synchronising", 2, environment, without_synchronising);
  run("revoked", 2, environment, revoked);
  run("refused there", 2, environment, refused_there);
  return 0;
}
