/* PITH_COMPRESS as a training program meets it, that knows nothing of it: when compression begins,
 * which vectors and communicators it takes, and that no vector gets another one's residual. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "compression.h"

/* Any sum of these tells which of them it is made of. */
static const float unit[layers] = {1, 64, 4096};

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
    fill(model->gradient[l], unit[l]);
    sum_up(me, comm, model->gradient[l], model->sum[l]);
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

static ncclComm_t join_pair(struct client* me, int first_id) {
  ncclComm_t pair = NULL;
  const ncclUniqueId ids[2] = {client_id(me, first_id), client_id(me, first_id + 1)};
  OK(ncclCommInitRank(&pair, 2, ids[me->rank / 2], me->rank % 2));
  return pair;
}

/* No launcher tells how large the job is: what was taken for it is so until another communicator
 * comes that is not smaller. */
static void guessed_job(struct client* me) {
  char text[65536];
  client_log();
  ncclComm_t gone = join_pair(me, 0), first = NULL, second = NULL, world = NULL;
  train(me, gone, 0, 1);
  OK(ncclCommDestroy(gone));
  first = join_pair(me, 2);
  train(me, first, 0, 1);
  second = join_pair(me, 4);
  train(me, second, 0, 0);
  train(me, first, 0, 0);
  OK(ncclCommInitRank(&world, me->size, client_id(me, 6), me->rank));
  train(me, world, 0, 1);
  train(me, second, 0, 0);
  OK(ncclCommDestroy(world));
  OK(ncclCommDestroy(second));
  OK(ncclCommDestroy(first));
  client_take_log(me, text, sizeof text);
  CHECK(client_times_in(text, "is taken for the whole job's, as no launcher") == 3);
  CHECK(client_times_in(text, "NCCL WARN PITH_COMPRESS: communicator of 2 ranks, rank") == 1);
  CHECK(client_times_in(text, "was taken for the whole job's and is no more") == 1);
}

/* A launcher does: a smaller communicator is none of it, whenever it is made. */
static void launched_job(struct client* me) {
  char rank[16];
  snprintf(rank, sizeof rank, "%d", me->rank);
  setenv("RANK", rank, 1);
  ncclComm_t pair = join_pair(me, 0), world = NULL, again = NULL;
  train(me, pair, 0, 0);
  OK(ncclCommInitRank(&world, me->size, client_id(me, 2), me->rank));
  OK(ncclCommInitRank(&again, me->size, client_id(me, 3), me->rank));
  train(me, world, 0, 1);
  train(me, again, 0, 1);
  OK(ncclCommDestroy(again));
  OK(ncclCommDestroy(world));
  OK(ncclCommDestroy(pair));
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

/* Halves, all of whose elements are 1: which types are compressed is told by types=. */
static void halves(struct client* me, int f16, int bf16) {
  static uint16_t ones[2 * n], sums[2 * n];
  ncclComm_t comm = client_join(me);
  for (int kind = 0; kind < 2; ++kind) {
    const ncclDataType_t type = kind == 0 ? ncclFloat16 : ncclBfloat16;
    for (int i = 0; i < steps; ++i) {
      for (int k = 0; k < 2 * n; ++k) ones[k] = kind == 0 ? 0x3C00 : 0x3F80;
      OK(ncclAllReduce(ones, sums, 2 * n, type, ncclSum, comm, NULL));
      int zeros = 0, exact = 0;
      for (int k = 0; k < 2 * n; ++k) {
        zeros += sums[k] == 0;
        exact += sums[k] == 0x4000; /* 2, of both types */
      }
      const int compressed = kind == 0 ? f16 : bf16;
      CHECK(compressed && i >= 2 ? zeros > 0 && zeros < 2 * n : exact == 2 * n);
    }
  }
  OK(ncclCommDestroy(comm));
}
static void halves_alike(struct client* me) { halves(me, 1, 1); }
static void halves_of_one_type(struct client* me) { halves(me, 0, 1); }
static void no_halves(struct client* me) { halves(me, 0, 0); }

/* A step is left out, vectors are exchanged, one rank's memory moves: the units must hold. */
static void disturbed(struct client* me) {
  ncclComm_t comm = client_join(me);
  struct model model;
  model_init(&model);
  float* other = malloc(n * sizeof *other);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < steps; ++i) step(me, &model, comm, round % 2);
    if (round == 1) { /* something else */
      sum_ones(me, comm, other, other);
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
  CHECK(strstr(ncclGetLastError(NULL), "CompressorCreate") == NULL); /* no function of NCCL's */
}

/* The log: one INFO line when it is on, one WARN when residuals were lost. */
static void logged(struct client* me) {
  char text[65536];
  client_log();
  ncclComm_t comm = client_join(me);
  train(me, comm, 0, 1);
  static float other[n]; /* no memory that a vector had */
  sum_up(me, comm, other, other);
  OK(ncclCommDestroy(comm));
  client_take_log(me, text, sizeof text);
  CHECK(client_times_in(text, "NCCL INFO PITH_COMPRESS: topk") == 1);
  CHECK(client_times_in(text, "is compressed from now on, by topk") == 1);
  CHECK(client_times_in(text, "is not compressed") == 0);
  CHECK(strstr(text, "in steps of 3 vectors") != NULL);
  CHECK(strstr(text, "dense where") == NULL); /* bypass=never */
  CHECK(client_times_in(text, "NCCL WARN PITH_COMPRESS: residuals of ") == 1);
  CHECK(strstr(text, "their norm was ") != NULL);
}

static void check_norm(struct client* me, const char* text, double squares) {
  const char* const words = "their norm was ";
  const char* const told = strstr(text, words);
  CHECK(told != NULL && squares > 0);
  const double norm = strtod(told + strlen(words), NULL);
  CHECK(fabs(norm - sqrt(squares)) < 1e-4 * norm);
}

/* The last rank's vector moves, for good or for one step, while the others' stay: what the ranks
 * were given has come, or is told by the rank that keeps it. Element k is of rank k % size alone.
 */
static void logged_break(struct client* me, int for_good) {
  enum { breaks = 6, all = 20 };
  char path[64], text[65536];
  static float memory[2][n], sum[n];
  static double left[n], left_then[n];
  int compressed = 0;
  snprintf(path, sizeof path, "/tmp/pith-nccl-%d.log", (int)getpid());
  client_log();
  ncclComm_t comm = client_join(me);
  const int moves = me->rank == me->size - 1;
  for (int i = 0; i < all; ++i) {
    float* const gradient = memory[moves && (for_good ? i >= breaks : i == breaks)];
    if (i == breaks) memcpy(left_then, left, sizeof left);
    for (int k = 0; k < n; ++k) gradient[k] = k % me->size == me->rank ? (float)(k % 7 + 1) : 0;
    sum_up(me, comm, gradient, sum);
    for (int k = 0; k < n; ++k) left[k] += (double)(k % 7 + 1) - (double)sum[k];
    compressed += zeros_in(sum) > 0;
    if (i == breaks) CHECK(zeros_in(sum) == 0);
  }
  CHECK(compressed > breaks && compressed < all - 2 && zeros_in(sum) > 0);
  OK(ncclCommDestroy(comm));
  double squares = 0;
  for (int k = me->rank; k < n; k += me->size) {
    const double lost = moves && for_good ? left_then[k] : 0;
    squares += lost * lost + (left[k] - lost) * (left[k] - lost);
  }
  client_take_log(me, text, sizeof text);
  check_norm(me, text, squares);
  CHECK(client_times_in(text, "NCCL WARN PITH_COMPRESS: residuals of ") == (moves && for_good));
}
static void logged_break_for_good(struct client* me) { logged_break(me, 1); }
static void logged_break_for_once(struct client* me) { logged_break(me, 0); }

int main(void) {
  const char* world[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K", NULL};
  const char* ar[] = {"PITH_COMPRESS=ar-topk:min=8KiB,density=0.2,bypass=never,types=f32", NULL};
  const char* named[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K",
                         "PITH_COMPRESS_COMM=gradients-*", NULL};
  client_run("whole job", 4, ar, whole_job);
  client_run("whole job", 2, world, whole_job);
  client_run("whole job off", 2, named, left_alone);
  client_run("guessed job", 4, world, guessed_job);
  const char* shell[] = {world[0],         "SLURM_PROCID=0",  "SLURM_LOCALID=0",
                         "SLURM_NTASKS=1", "SLURM_NNODES=1",  "SLURM_STEP_NODELIST=a",
                         "SLURM_JOB_ID=1", "SLURM_STEP_ID=0", NULL};
  client_run("started from a job's shell", 4, shell, guessed_job);
  const char* launched[] = {world[0], "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=9",
                            NULL};
  client_run("launched job", 4, launched, launched_job);
  client_run("groups", 3, world, in_groups);
  client_run("by name", 2, named, by_name);
  client_run("by name on one rank", 2, named, by_name_on_one_rank);
  client_run("one thread", 1, world, one_thread);
  client_run("left alone", 3, world, left_alone);
  const char* types[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K,types=f32|bf16",
                         NULL};
  const char* floats[] = {"PITH_COMPRESS=topk:density=0.25,bypass=never,min=16K,types=f32", NULL};
  /* Alone and in groups, whatever density is chosen. */
  const char* adapting[] = {"PITH_COMPRESS=topk:density=0.1..0.3,bypass=never,min=16K", NULL};
  const char* adapting_ar[] = {
      "PITH_COMPRESS=ar-topk:density=0.1..0.3,objective=paper,bypass=never,min=16K", NULL};
  client_run("adapting density", 4, adapting, whole_job);
  client_run("adapting density in groups", 3, adapting, in_groups);
  client_run("adapting density, disturbed", 3, adapting, disturbed);
  client_run("adapting density of a leader, disturbed", 2, adapting_ar, disturbed);
  client_run("adapting density, left alone", 2, adapting, left_alone);
  client_run("halves", 2, world, halves_alike);
  client_run("halves of one type", 2, types, halves_of_one_type);
  client_run("no halves", 2, floats, no_halves);
  client_run("disturbed", 3, world, disturbed);
  client_run("disturbed", 2, ar, disturbed);
  client_run("log", 2, world, logged);
  client_run("log of a vector that moves for good", 2, world, logged_break_for_good);
  client_run("log of a vector that moves for once", 3, world, logged_break_for_once);
  client_run("differing", 2, NULL, differing);
  const char* bad[] = {"nonsense:density=1", "topk:min=1XB",     "topk:types=f32|f64",
                       "topk:nonsense=1",    "topk:min=1,min=2", "choco"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    char variable[64];
    const char* environment[] = {variable, NULL};
    snprintf(variable, sizeof variable, "PITH_COMPRESS=%s", bad[i]);
    client_run(bad[i], 1, environment, bad_spec);
  }
  return 0;
}
