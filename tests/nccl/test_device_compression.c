/* PITH_COMPRESS for sums of device memory on streams, as a training program meets it: on the stub
 * driver, given as the argument, whose device memory the host may look into. */
#include <string.h>
#include <unistd.h>

#include "driver.h"

enum { layers = 3, n = 40000, steps = 12, relaxed = 2 };

static void* const not_default = (void*)-1;

static float* device_floats(struct client* me) { return floats_of(me, n, 0); }
static int zeros_in(const float* vector) { return zeros_among(vector, n); }

/* No more than these: ncclMemAlloc's are whole pages. */
static float* floats_of_driver(struct client* me) {
  unsigned long long memory = 0;
  CHECK(cuda.alloc(&memory, n * sizeof(float)) == 0);
  return memset((void*)(uintptr_t)memory, 0, n * sizeof(float));
}

/* The same layers on a device, and on the host by calls of their own: they get the same sums, so
 * that what the tests of host memory show holds here. */
struct model {
  void* stream;
  float* gradient[layers];
  float* sum[layers];
  float* host_gradient[layers];
  float* host_sum[layers];
  int compressed[layers]; /* steps */
};

static void model_init(struct client* me, struct model* model, void* stream) {
  model->stream = stream;
  memset(model->compressed, 0, sizeof model->compressed);
  for (int l = 0; l < layers; ++l) {
    model->gradient[l] = device_floats(me);
    model->sum[l] = device_floats(me);
    model->host_gradient[l] = malloc(n * sizeof(float));
    model->host_sum[l] = malloc(n * sizeof(float));
  }
}

static void model_free(struct client* me, struct model* model) {
  for (int l = 0; l < layers; ++l) {
    OK(ncclMemFree(model->gradient[l]));
    OK(ncclMemFree(model->sum[l]));
    free(model->host_gradient[l]);
    free(model->host_sum[l]);
  }
}

static void step(struct client* me, struct model* model, ncclComm_t comm, ncclComm_t on_host,
                 int number, int grouped) {
  const ncclRedOp_t op = number % 3 == 2 ? ncclAvg : ncclSum;
  for (int l = 0; l < layers; ++l) {
    for (int i = 0; i < n; ++i) {
      model->gradient[l][i] = model->host_gradient[l][i] = gradient_of(me, l, number, i);
    }
  }
  if (grouped) OK(ncclGroupStart());
  for (int l = 0; l < layers; ++l) {
    OK(ncclAllReduce(model->gradient[l], model->sum[l], n, ncclFloat32, op, comm, model->stream));
  }
  if (grouped) OK(ncclGroupEnd());
  if (grouped) OK(ncclGroupStart());
  for (int l = 0; l < layers; ++l) {
    OK(ncclAllReduce(model->host_gradient[l], model->host_sum[l], n, ncclFloat32, op, on_host,
                     NULL));
  }
  if (grouped) OK(ncclGroupEnd());
  CHECK(cuda.synchronize(model->stream) == 0);
  for (int l = 0; l < layers; ++l) {
    const int compressed = zeros_in(model->host_sum[l]) > n / 4;
    CHECK((zeros_in(model->sum[l]) > n / 4) == compressed);
    model->compressed[l] += compressed;
    if (compressed) CHECK(memcmp(model->sum[l], model->host_sum[l], n * sizeof(float)) == 0);
  }
}

static void train(struct client* me, int grouped, void* default_stream) {
  struct model model;
  use_device(me);
  void* const own = new_stream(me);
  ncclComm_t comm = client_join(me), on_host = NULL;
  OK(ncclCommSplit(comm, 0, me->rank, &on_host, NULL));
  model_init(me, &model, default_stream == not_default ? own : default_stream);
  for (int i = 0; i < steps; ++i) step(me, &model, comm, on_host, i, grouped);
  for (int l = 0; l < layers; ++l) {
    CHECK(model.compressed[l] >= steps - 5 && model.compressed[l] <= steps - 3);
  }
  model_free(me, &model);
  CHECK(cuda.destroy_stream(own) == 0);
  OK(ncclCommDestroy(on_host));
  OK(ncclCommDestroy(comm));
}
static void whole_job(struct client* me) { train(me, 0, not_default); }
static void in_groups(struct client* me) { train(me, 1, not_default); }
/* As PyTorch's collectives that are not asynchronous: on its current stream. */
static void on_null(struct client* me) { train(me, 0, NULL); }
static void on_own_of_thread(struct client* me) { train(me, 0, (void*)2); }

/* The call returns before its stream gets there. */
static void not_blocking(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  void* const stream = new_stream(me);
  float *send = device_floats(me), *recv = device_floats(me);
  uint64_t* const word = new_word(me);
  for (int i = 0; i < n; ++i) send[i] = 1;
  for (uint64_t i = 1; i <= steps; ++i) {
    wait_for_word(me, stream, word, i);
    OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
    usleep(1000);
    if (i == 1) CHECK(recv[0] == 0);
    set_word(word, i);
    CHECK(cuda.synchronize(stream) == 0);
    CHECK((zeros_in(recv) > 0) == (i > 2));
  }
  OK(ncclCommDestroy(comm));
}

/* One rank makes all of its calls before the other makes its first: none waits for another rank's,
 * whether compression has yet to begin, begins or goes on. `times`: of the vector, in each group.
 */
static void ahead_by(struct client* me, int times) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  void* const stream = new_stream(me);
  float *send = device_floats(me), *recv[2 * steps];
  for (int i = 0; i < n; ++i) send[i] = 1;
  for (int i = 0; i < steps * times; ++i) recv[i] = device_floats(me);
  client_meet(me, 0);
  if (me->rank != 0) client_meet(me, 1);
  for (int i = 0; i < steps; ++i) {
    if (times > 1) OK(ncclGroupStart());
    for (int t = 0; t < times; ++t) {
      OK(ncclAllReduce(send, recv[i * times + t], n, ncclFloat32, ncclSum, comm, stream));
    }
    if (times > 1) OK(ncclGroupEnd());
  }
  if (me->rank == 0) client_meet(me, 1);
  CHECK(cuda.synchronize(stream) == 0);
  for (int i = 0; i < steps; ++i) { /* in a group the vector's residual goes with its first */
    for (int t = 0; t < times; ++t) {
      const int zeros = zeros_in(recv[i * times + t]);
      CHECK(t == 0 && i * times >= 2 ? zeros > 0 && zeros < n : zeros == 0);
    }
  }
  OK(ncclCommDestroy(comm));
}
static void ahead(struct client* me) { ahead_by(me, 1); }
static void ahead_in_groups(struct client* me) { ahead_by(me, 2); }

/* Two communicators that the ranks call in other orders, several times a step. */
static void in_other_orders(struct client* me) {
  use_device(me);
  ncclComm_t comm[2] = {client_join(me), NULL};
  OK(ncclCommSplit(comm[0], 0, me->rank, &comm[1], NULL));
  void* stream[2] = {new_stream(me), new_stream(me)};
  float *send[2], *recv[2][2 * steps];
  for (int c = 0; c < 2; ++c) {
    send[c] = device_floats(me);
    for (int i = 0; i < n; ++i) send[c][i] = 1;
    for (int i = 0; i < 2 * steps; ++i) recv[c][i] = device_floats(me);
  }
  for (int i = 0; i < steps; ++i) {
    for (int half = 0; half < 2; ++half) {
      const int c = (me->rank + half) % 2;
      for (int t = 2 * i; t < 2 * i + 2; ++t) {
        OK(ncclAllReduce(send[c], recv[c][t], n, ncclFloat32, ncclSum, comm[c], stream[c]));
      }
    }
  }
  for (int c = 0; c < 2; ++c) CHECK(cuda.synchronize(stream[c]) == 0);
  for (int c = 0; c < 2; ++c) {
    for (int i = 0; i < 2 * steps; ++i) CHECK((zeros_in(recv[c][i]) > 0) == (i >= 2));
  }
  OK(ncclCommDestroy(comm[1]));
  OK(ncclCommDestroy(comm[0]));
}

/* A vector is called on two streams, of which one rank's first is held up: its calls go on in their
 * order, which the other rank has, not in that of the streams. */
static void in_order_of_calls(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  void* streams[2] = {new_stream(me), new_stream(me)};
  float *send = device_floats(me), *recv[2] = {device_floats(me), device_floats(me)};
  uint64_t* const word = new_word(me);
  set_word(word, me->rank != 0);
  for (int i = 0; i < n; ++i) send[i] = 1;
  for (int i = 0; i < 4; ++i) {
    OK(ncclAllReduce(send, recv[0], n, ncclFloat32, ncclSum, comm, streams[0]));
  }
  CHECK(cuda.synchronize(streams[0]) == 0);
  memset(recv[0], 0, n * sizeof(float));
  wait_for_word(me, streams[0], word, 1);
  for (int s = 0; s < 2; ++s) {
    OK(ncclAllReduce(send, recv[s], n, ncclFloat32, ncclSum, comm, streams[s]));
  }
  usleep(50 * 1000);
  CHECK(zeros_in(recv[1]) == n);
  client_meet(me, 0);
  set_word(word, 1);
  for (int s = 0; s < 2; ++s) {
    CHECK(cuda.synchronize(streams[s]) == 0);
    CHECK(zeros_in(recv[s]) > 0 && zeros_in(recv[s]) < n);
  }
  OK(ncclCommDestroy(comm));
}

/* One rank does not select the communicator: all cease to vote with the same call, however far one
 * is ahead of the other. */
static void switched_off(struct client* me) {
  enum { many = 150 };
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL;
  config.commName = me->rank == 0 ? "gradients-1" : "other";
  use_device(me);
  OK(ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config));
  void* const stream = new_stream(me);
  float *send = device_floats(me), *recv = device_floats(me);
  for (int i = 0; i < n; ++i) send[i] = 1;
  for (int i = 0; i < many; ++i) {
    if (me->rank == 0 && i == 40) usleep(20 * 1000);
    OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
    if (me->rank != 0) CHECK(cuda.synchronize(stream) == 0);
  }
  CHECK(cuda.synchronize(stream) == 0);
  for (int i = 0; i < n; ++i) CHECK(recv[i] == (float)me->size);
  OK(ncclCommDestroy(comm));
}

/* One rank's vectors move all the time: the other takes little more of the device's memory than
 * what it has mapped of them. */
static void no_memory_for_nothing(struct client* me) {
  static const int order[steps] = {0, 1, 2, 3, 1, 0, 3, 2, 0, 2, 1, 3};
  use_device(me);
  ncclComm_t comm = client_join(me);
  void* const stream = new_stream(me);
  float *send[4], *recv = floats_of_driver(me);
  size_t left_then = 0, left = 0, total = 0;
  for (int v = 0; v < 4; ++v) send[v] = floats_of_driver(me);
  for (int i = 0; i < steps; ++i) {
    const float* const vector = send[me->rank == 0 ? 0 : order[i]];
    OK(ncclAllReduce(vector, recv, n, ncclFloat32, ncclSum, comm, stream));
    CHECK(cuda.synchronize(stream) == 0);
    CHECK(cuda.memory_left(&left, &total) == 0);
    if (i == 0) left_then = left;
  }
  CHECK(left > 0 && left_then - left < (size_t)1 << 20);
  OK(ncclCommDestroy(comm));
}

/* A rank without memory for a residual keeps the sums dense, and the job alive. */
static void no_room(struct client* me) {
  use_device(me);
  void (*largest)(size_t) = NULL;
  *(void**)&largest = driver_symbol(me, "pithStubLargestAllocation");
  ncclComm_t comm = client_join(me);
  void* const stream = new_stream(me);
  float *send = device_floats(me), *recv = device_floats(me);
  for (int i = 0; i < n; ++i) send[i] = 1;
  if (me->rank == 1) largest(n);
  for (int i = 0; i < 3 * steps; ++i) {
    if (i == steps) largest(~(size_t)0);
    OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
    CHECK(cuda.synchronize(stream) == 0);
    CHECK(i >= steps || zeros_in(recv) == 0);
  }
  CHECK(zeros_in(recv) > 0);
  OK(ncclCommDestroy(comm));
}

/* The communicator goes while calls wait to be told what they are: their streams go on. */
static void aborted_in_a_vote(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  void* const stream = new_stream(me);
  float *send = device_floats(me), *recv = device_floats(me);
  if (me->rank == 0) {
    for (int i = 0; i < 4; ++i) {
      OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
    }
    usleep(20 * 1000);
  } else {
    client_meet(me, 0);
  }
  OK(ncclCommAbort(comm));
  CHECK(cuda.synchronize(stream) == 0);
  if (me->rank == 0) client_meet(me, 0);
}

/* blocking = 0 */
static void in_the_background(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  use_device(me);
  ncclComm_t comm = NULL;
  ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) OK(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess);
  void* const stream = new_stream(me);
  float *send = device_floats(me), *recv = device_floats(me);
  for (int i = 0; i < n; ++i) send[i] = 1;
  for (int i = 0; i < steps; ++i) {
    state = ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream);
    while (state == ncclInProgress) OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
    CHECK(cuda.synchronize(stream) == 0);
    CHECK((zeros_in(recv) > 0) == (i >= 2));
  }
  OK(ncclCommDestroy(comm));
}

/* A captured sum is the plain one in every replay, between sums that are compressed. */
static void captured(struct client* me) {
  use_device(me);
  ncclComm_t comm = client_join(me);
  void* const stream = new_stream(me);
  float *send = device_floats(me), *recv = device_floats(me);
  float *other = device_floats(me), *total = device_floats(me);
  void *graph = NULL, *runnable = NULL;
  CHECK(cuda.begin_capture(stream, relaxed) == 0);
  OK(ncclAllReduce(other, total, n, ncclFloat32, ncclSum, comm, stream));
  CHECK(cuda.end_capture(stream, &graph) == 0);
  CHECK(cuda.instantiate(&runnable, graph, 0) == 0);
  for (int i = 0; i < steps; ++i) {
    for (int k = 0; k < n; ++k) send[k] = 1;
    for (int k = 0; k < n; ++k) other[k] = (float)(i + 1);
    OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, stream));
    CHECK(cuda.launch(runnable, stream) == 0);
    CHECK(cuda.synchronize(stream) == 0);
    CHECK((zeros_in(recv) > 0) == (i >= 2));
    for (int k = 0; k < n; ++k) CHECK(total[k] == (float)((i + 1) * me->size));
  }
  OK(ncclCommDestroy(comm));
}

/* What is refused takes no part in a vote. Host memory may come on a stream, too. */
static void bad_calls(struct client* me) {
  static float plain[n], sum[n];
  use_device(me);
  ncclComm_t comm = client_join(me);
  void* const stream = new_stream(me);
  float* device = device_floats(me);
  if (me->rank == 0) {
    FAILS(ncclInvalidArgument, ncclAllReduce(device, plain, n, ncclFloat32, ncclSum, comm, stream));
    FAILS(ncclInvalidArgument, ncclAllReduce(plain, device, n, ncclFloat32, ncclSum, comm, stream));
    FAILS(ncclInvalidArgument, ncclAllReduce(device, NULL, n, ncclFloat32, ncclSum, comm, stream));
    FAILS(ncclInvalidArgument, ncclAllReduce(device, plain, n, ncclFloat32, ncclSum, comm, NULL));
  }
  for (int i = 0; i < steps; ++i) {
    for (int k = 0; k < n; ++k) plain[k] = 1;
    OK(ncclAllReduce(plain, sum, n, ncclFloat32, ncclSum, comm, stream));
    CHECK(cuda.synchronize(stream) == 0);
    CHECK((zeros_in(sum) > 0) == (i >= 2));
  }
  OK(ncclCommDestroy(comm));
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  driver_path = arguments[1];
  const char* world[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K", NULL};
  const char* named[] = {world[0], "PITH_COMPRESS_COMM=gradients-*", NULL};
  const char* schemes[] = {
      "PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K",
      "PITH_COMPRESS=ar-topk:density=0.2,values=bf16,bypass=never,min=16K",
      "PITH_COMPRESS=ar-topk:density=0.2,election=variance,score=raw,bypass=never,min=16K",
      "PITH_COMPRESS=deft:density=0.2,bypass=never,min=16K",
  };
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; ++i) {
    const char* environment[] = {schemes[i], NULL};
    client_run(schemes[i], 2, environment, whole_job);
  }
  client_run("whole job", 3, world, whole_job);
  client_run("groups", 2, world, in_groups);
  client_run("stream NULL", 2, world, on_null);
  client_run("a thread's own stream", 2, world, on_own_of_thread);
  client_run("not blocking", 2, world, not_blocking);
  client_run("ahead", 3, world, ahead);
  client_run("ahead in groups", 2, world, ahead_in_groups);
  client_run("in other orders", 2, world, in_other_orders);
  client_run("in order of calls", 2, world, in_order_of_calls);
  client_run("switched off", 2, named, switched_off);
  client_run("no memory for nothing", 2, world, no_memory_for_nothing);
  client_run("no room", 2, world, no_room);
  client_run("abort in a vote", 2, world, aborted_in_a_vote);
  client_run("blocking = 0", 2, world, in_the_background);
  client_run("captured", 2, world, captured);
  client_run("bad calls", 2, world, bad_calls);
  return 0;
}
