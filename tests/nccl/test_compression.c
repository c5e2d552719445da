/* PITH_COMPRESS as a training program meets it, that knows nothing of it: when compression begins,
 * which vectors and communicators it takes, and that no vector gets another one's residual. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

enum { layers = 3, n = 4096, steps = 12 };

/* Any sum of these tells which of them it is made of. */
static const float unit[layers] = {1, 64, 4096};

static int zeros_in(const float* vector) {
  int zeros = 0;
  for (int i = 0; i < n; ++i) zeros += vector[i] == 0;
  return zeros;
}

struct model {
  float* gradient[layers];
  float* sum[layers];
  double delivered[layers];
  int compressed[layers]; /* steps */
  int made;
};

static void model_init(struct model* model) {
  memset(model, 0, sizeof *model);
  for (int l = 0; l < layers; ++l) {
    model->gradient[l] = malloc(n * sizeof(float));
    model->sum[l] = malloc(n * sizeof(float));
  }
}

/* One step: every element of layer l is unit[l] on every rank. */
static void step(struct client* me, struct model* model, ncclComm_t comm, int grouped) {
  int size;
  OK(ncclCommCount(comm, &size));
  if (grouped) OK(ncclGroupStart());
  for (int l = 0; l < layers; ++l) {
    for (int i = 0; i < n; ++i) model->gradient[l][i] = unit[l];
    OK(ncclAllReduce(model->gradient[l], model->sum[l], n, ncclFloat32, ncclSum, comm, NULL));
  }
  if (grouped) OK(ncclGroupEnd());
  ++model->made;
  for (int l = 0; l < layers; ++l) {
    model->compressed[l] += zeros_in(model->sum[l]) > 0;
    for (int i = 0; i < n; ++i) {
      const float times = model->sum[l][i] / unit[l];
      CHECK(times == floorf(times) && times >= 0); /* nothing of a smaller unit */
      CHECK(times <= (float)(size * model->made)); /* nor of a larger one */
      model->delivered[l] += times;
    }
    CHECK(model->delivered[l] <= (double)n * size * model->made);
  }
}

static void model_free(struct model* model) {
  for (int l = 0; l < layers; ++l) {
    free(model->gradient[l]);
    free(model->sum[l]);
  }
}

static void train(struct client* me, ncclComm_t comm, int grouped, int expect) {
  struct model model;
  model_init(&model);
  for (int i = 0; i < steps; ++i) step(me, &model, comm, grouped);
  /* Two periods to see the cycle, two to agree. */
  for (int l = 0; l < layers; ++l) {
    CHECK(expect ? model.compressed[l] >= steps - 5 && model.compressed[l] <= steps - 3
                 : model.compressed[l] == 0);
    CHECK(expect || model.delivered[l] > 0);
  }
  model_free(&model);
}

static void whole_job(struct client* me) {
  ncclComm_t comm = client_join(me), half = NULL, all = NULL;
  train(me, comm, 0, 1);
  OK(ncclCommSplit(comm, me->rank % 2, 0, &half, NULL));
  train(me, half, 0, 0); /* a sum here may be an activation */
  OK(ncclCommSplit(comm, 0, 0, &all, NULL));
  train(me, all, 0, 1);
  OK(ncclCommDestroy(all));
  OK(ncclCommDestroy(half));
  OK(ncclCommDestroy(comm));
}

static void in_groups(struct client* me) {
  ncclComm_t comm = client_join(me);
  train(me, comm, 1, 1);
  OK(ncclCommDestroy(comm));
}

static void by_name(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t plain = client_join(me), named = NULL;
  config.commName = "gradients-3";
  OK(ncclCommSplit(plain, 0, me->rank, &named, &config));
  train(me, plain, 0, 0);
  train(me, named, 0, 1);
  OK(ncclCommDestroy(named));
  OK(ncclCommDestroy(plain));
}

static void by_name_on_one_rank(struct client* me) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t comm = NULL;
  config.commName = me->rank == 0 ? "gradients-1" : "other";
  OK(ncclCommInitRankConfig(&comm, me->size, client_id(me, 0), me->rank, &config));
  train(me, comm, 0, 0);
  OK(ncclCommDestroy(comm));
}

/* Ranks of one thread vote in one group. */
static void one_thread(struct client* me) {
  enum { ranks = 3 };
  ncclComm_t comms[ranks];
  float* send[ranks];
  float* recv[ranks];
  OK(ncclCommInitAll(comms, ranks, NULL));
  for (int r = 0; r < ranks; ++r) {
    send[r] = malloc(n * sizeof(float));
    recv[r] = malloc(n * sizeof(float));
  }
  for (int i = 0; i < steps; ++i) {
    OK(ncclGroupStart());
    for (int r = 0; r < ranks; ++r) {
      for (int k = 0; k < n; ++k) send[r][k] = 1;
      OK(ncclAllReduce(send[r], recv[r], n, ncclFloat32, ncclAvg, comms[r], NULL));
    }
    OK(ncclGroupEnd());
    for (int r = 0; r < ranks; ++r) {
      CHECK(memcmp(recv[r], recv[0], n * sizeof(float)) == 0);
      CHECK((zeros_in(recv[r]) > 0) == (i >= 2));
    }
  }
  for (int r = 0; r < ranks; ++r) {
    free(send[r]);
    free(recv[r]);
    OK(ncclCommDestroy(comms[r]));
  }
}

/* What is not a large sum of listed types is exact, always. */
static void left_alone(struct client* me) {
  ncclComm_t comm = client_join(me);
  double* doubles = malloc(n * sizeof *doubles);
  float* floats = malloc(n * sizeof *floats);
  for (int i = 0; i < steps; ++i) {
    for (int k = 0; k < n; ++k) doubles[k] = floats[k] = 1;
    OK(ncclAllReduce(doubles, doubles, n, ncclFloat64, ncclSum, comm, NULL));
    for (int k = 0; k < n; ++k) CHECK(doubles[k] == me->size);
    OK(ncclAllReduce(floats, floats, n, ncclFloat32, ncclMax, comm, NULL));
    CHECK(zeros_in(floats) == 0);
    OK(ncclAllReduce(floats, floats, 100, ncclFloat32, ncclSum, comm, NULL));
    for (int k = 0; k < 100; ++k) CHECK(floats[k] == (float)me->size);
    OK(ncclBroadcast(floats, floats, n, ncclFloat32, 0, comm, NULL));
  }
  free(doubles);
  free(floats);
  OK(ncclCommDestroy(comm));
}

/* A step is left out, vectors are exchanged, one rank's memory moves: the units must hold. */
static void disturbed(struct client* me) {
  ncclComm_t comm = client_join(me);
  struct model model;
  model_init(&model);
  float* other = malloc(n * sizeof *other);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < steps; ++i) step(me, &model, comm, round % 2);
    if (round == 1) { /* something else */
      for (int k = 0; k < n; ++k) other[k] = 1;
      OK(ncclAllReduce(other, other, n, ncclFloat32, ncclSum, comm, NULL));
      for (int k = 0; k < n; ++k) CHECK(other[k] == (float)me->size);
    }
    if (round == 2 || (round == 3 && me->rank == 1)) { /* equal vectors exchange their memory */
      float* first = model.gradient[0];
      for (int l = 0; l + 1 < layers; ++l) model.gradient[l] = model.gradient[l + 1];
      model.gradient[layers - 1] = first;
    }
    if (round == 4 && me->rank == 0) {
      float* moved = malloc(n * sizeof *moved);
      free(model.gradient[1]);
      model.gradient[1] = moved;
    }
  }
  for (int l = 0; l < layers; ++l) CHECK(model.compressed[l] > steps);
  free(other);
  model_free(&model);
  OK(ncclCommDestroy(comm));
}

/* It is one of the settings that ranks compare when they meet. */
static void differing(struct client* me) {
  ncclComm_t comm = NULL;
  setenv("PITH_COMPRESS", me->rank == 0 ? "topk:density=0.5" : "bf16", 1);
  CHECK(ncclCommInitRank(&comm, me->size, client_id(me, 0), me->rank) != ncclSuccess);
  CHECK(strstr(ncclGetLastError(NULL), "PITH_COMPRESS=") != NULL);
}

static void bad_spec(struct client* me) {
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  OK(ncclGetUniqueId(&id));
  FAILS(ncclInvalidArgument, ncclCommInitRank(&comm, 1, id, 0));
  CHECK(strstr(ncclGetLastError(NULL), "PITH_COMPRESS") != NULL);
  CHECK(strstr(ncclGetLastError(NULL), "expected") != NULL); /* and what is known */
}

static void read_log(struct client* me, const char* path, char* text, size_t room) {
  FILE* file = fopen(path, "r");
  CHECK(file != NULL);
  text[fread(text, 1, room - 1, file)] = '\0';
  fclose(file);
}

static int count_of(const char* text, const char* word) {
  int count = 0;
  for (const char* at = text; (at = strstr(at, word)) != NULL; ++at) ++count;
  return count;
}

/* The log: one INFO line when it is on, one WARN when residuals were lost. */
static void logged(struct client* me) {
  char path[64], text[65536];
  snprintf(path, sizeof path, "/tmp/pith-nccl-%d.log", (int)getpid());
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_FILE", "/tmp/pith-nccl-%p.log", 1);
  ncclComm_t comm = client_join(me);
  train(me, comm, 0, 1);
  static float other[n]; /* no memory that a vector had */
  OK(ncclAllReduce(other, other, n, ncclFloat32, ncclSum, comm, NULL));
  OK(ncclCommDestroy(comm));
  read_log(me, path, text, sizeof text);
  unlink(path);
  CHECK(count_of(text, "NCCL INFO PITH_COMPRESS: topk") == 1);
  CHECK(count_of(text, "NCCL WARN PITH_COMPRESS: residuals of ") == 1);
  CHECK(strstr(text, "their norm was ") != NULL);
}

int main(void) {
  const char* world[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K", NULL};
  const char* ar[] = {"PITH_COMPRESS=ar-topk:min=8KiB,density=0.2,bypass=never,types=f32", NULL};
  const char* named[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K",
                         "PITH_COMPRESS_COMM=gradients-*", NULL};
  client_run("whole job", 4, ar, whole_job);
  client_run("whole job", 2, world, whole_job);
  client_run("whole job off", 2, named, left_alone);
  client_run("groups", 3, world, in_groups);
  client_run("by name", 2, named, by_name);
  client_run("by name on one rank", 2, named, by_name_on_one_rank);
  client_run("one thread", 1, world, one_thread);
  client_run("left alone", 3, world, left_alone);
  client_run("disturbed", 3, world, disturbed);
  client_run("disturbed", 2, ar, disturbed);
  client_run("log", 2, world, logged);
  client_run("differing", 2, NULL, differing);
  const char* bad[] = {"PITH_COMPRESS=nonsense:density=1",  "PITH_COMPRESS=topk:min=1XB",
                       "PITH_COMPRESS=topk:types=f32|f64",  "PITH_COMPRESS=topk:density=2",
                       "PITH_COMPRESS=topk:hierarchy=host", "PITH_COMPRESS=topk:min=1,,"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    const char* environment[] = {bad[i], NULL};
    client_run(bad[i], 1, environment, bad_spec);
  }
  return 0;
}
