/* A small version of nccl-tests in C, for host memory: a client of NCCL that times and checks
 * collectives. It uses Pith only through NCCL's symbols.
 *
 * Usage: nccl_perf_client [-p RANKS] [-b BYTES] [-e BYTES] [-f FACTOR] [-n ITERATIONS] [-m]
 *        [COLLECTIVE...]    -m: memory of ncclMemAlloc
 */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

enum collective { allreduce, allgather, reducescatter, broadcast, alltoall, sendrecv, kinds };
static const char* const names[kinds] = {"allreduce", "allgather", "reducescatter",
                                         "broadcast", "alltoall",  "sendrecv"};

static struct {
  int ranks, iterations, allocated;
  size_t first, last, factor;
  enum collective kind;
} setup = {2, 20, 0, 1024, (size_t)1 << 20, 4, allreduce};

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static float value(int rank, size_t i) { return (float)(rank + 1) * (float)(i % 5); }

static float sum_of(int ranks, size_t i) {
  return (float)(ranks * (ranks + 1) / 2) * (float)(i % 5);
}

/* `count`: elements per block; some buffers hold one block per rank. */
static void call(struct client* me, ncclComm_t comm, const float* send, float* recv, size_t count) {
  const int next = (me->rank + 1) % me->size, before = (me->rank + me->size - 1) % me->size;
  switch (setup.kind) {
    case allreduce:
      OK(ncclAllReduce(send, recv, count, ncclFloat32, ncclSum, comm, NULL));
      return;
    case allgather:
      OK(ncclAllGather(send, recv, count, ncclFloat32, comm, NULL));
      return;
    case reducescatter:
      OK(ncclReduceScatter(send, recv, count, ncclFloat32, ncclSum, comm, NULL));
      return;
    case broadcast:
      OK(ncclBroadcast(send, recv, count, ncclFloat32, 0, comm, NULL));
      return;
    case alltoall:
      OK(ncclAlltoAll(send, recv, count, ncclFloat32, comm, NULL));
      return;
    default:
      OK(ncclGroupStart());
      OK(ncclSend(send, count, ncclFloat32, next, comm, NULL));
      OK(ncclRecv(recv, count, ncclFloat32, before, comm, NULL));
      OK(ncclGroupEnd());
  }
}

/* Element i of a block: the value sent, and the value expected. */
static float sent(struct client* me, size_t block, size_t i) { return value(me->rank, i + block); }

static float expected(struct client* me, size_t block, size_t i) {
  const int before = (me->rank + me->size - 1) % me->size;
  switch (setup.kind) {
    case allreduce:
      return sum_of(me->size, i);
    case allgather:
      return value((int)block, i);
    case reducescatter:
      return sum_of(me->size, i + (size_t)me->rank);
    case broadcast:
      return value(0, i);
    case alltoall:
      return value((int)block, i + (size_t)me->rank);
    default:
      return value(before, i);
  }
}

static size_t wrong_in(struct client* me, const float* recv, size_t blocks, size_t count) {
  size_t wrong = 0;
  for (size_t b = 0; b < blocks; ++b)
    for (size_t i = 0; i < count; ++i) wrong += recv[b * count + i] != expected(me, b, i);
  return wrong;
}

static double bus_factor(int ranks) {
  const double n = ranks;
  if (setup.kind == allreduce) return 2 * (n - 1) / n;
  return setup.kind == broadcast || setup.kind == sendrecv ? 1 : (n - 1) / n;
}

static float* allocate(struct client* me, size_t bytes) {
  void* memory = NULL;
  if (setup.allocated) {
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* else it would be device memory */
    OK(ncclMemAlloc(&memory, bytes));
  } else {
    memory = malloc(bytes);
  }
  CHECK(memory != NULL);
  return memory;
}

static void measure(struct client* me, ncclComm_t comm, float* send, float* recv, size_t bytes) {
  const int one_to_all = setup.kind == allgather || setup.kind == alltoall;
  const int all_to_one = setup.kind == reducescatter || setup.kind == alltoall;
  const size_t n = (size_t)me->size;
  const size_t count = bytes / sizeof(float) / (one_to_all || all_to_one ? n : 1);
  for (size_t b = 0; b < (all_to_one ? n : 1); ++b)
    for (size_t i = 0; i < count; ++i) send[b * count + i] = sent(me, b, i);
  call(me, comm, send, recv, count);
  double wrong = (double)wrong_in(me, recv, one_to_all ? n : 1, count), seconds;
  const double begin = now_s();
  for (int i = 0; i < setup.iterations; ++i) call(me, comm, send, recv, count);
  seconds = (now_s() - begin) / setup.iterations;
  OK(ncclAllReduce(&seconds, &seconds, 1, ncclFloat64, ncclAvg, comm, NULL));
  OK(ncclAllReduce(&wrong, &wrong, 1, ncclFloat64, ncclSum, comm, NULL));
  if (me->rank != 0) return;
  const double rate = (double)bytes / seconds / 1e9;
  printf("%12zu %12zu %8s %6s %6d %10.2f %8.3f %8.3f %8.0f\n", bytes, count, "float",
         setup.kind == allreduce || setup.kind == reducescatter ? "sum" : "none",
         setup.kind == broadcast ? 0 : -1, 1e6 * seconds, rate, rate * bus_factor(me->size), wrong);
  fflush(stdout);
  CHECK(wrong == 0);
}

static void run(struct client* me) {
  alarm(0);
  ncclComm_t comm = client_join(me);
  float* send = allocate(me, setup.last);
  float* recv = allocate(me, setup.last);
  if (me->rank == 0) {
    int version;
    OK(ncclGetVersion(&version));
    printf("# %s, %d ranks, NCCL %d, %s memory\n", names[setup.kind], me->size, version,
           setup.allocated ? "ncclMemAlloc's" : "private");
    printf("#%11s %12s %8s %6s %6s %10s %8s %8s %8s\n", "size (B)", "count", "type", "redop",
           "root", "time (us)", "algbw", "busbw", "#wrong");
  }
  for (size_t bytes = setup.first; bytes <= setup.last; bytes *= setup.factor) {
    measure(me, comm, send, recv, bytes);
  }
  if (setup.allocated) {
    OK(ncclMemFree(send));
    OK(ncclMemFree(recv));
  }
  OK(ncclCommDestroy(comm));
}

static size_t bytes_of(const char* text) {
  char* unit;
  const size_t number = strtoull(text, &unit, 10);
  return number << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0);
}

int main(int count, char** arguments) {
  int option;
  while ((option = getopt(count, arguments, "p:b:e:f:n:m")) != -1) {
    if (option == 'p') setup.ranks = atoi(optarg);
    if (option == 'b') setup.first = bytes_of(optarg);
    if (option == 'e') setup.last = bytes_of(optarg);
    if (option == 'f') setup.factor = bytes_of(optarg);
    if (option == 'n') setup.iterations = atoi(optarg);
    if (option == 'm') setup.allocated = 1;
    if (option == '?') return 2;
  }
  const size_t least = sizeof(float) * (size_t)setup.ranks; /* one element per rank's block */
  if (setup.ranks < 1 || setup.ranks > client_ranks_max || setup.factor < 2 ||
      setup.first < least) {
    fprintf(stderr, "expected 1 to %d ranks, a factor from 2, sizes from 4 bytes a rank\n",
            client_ranks_max);
    return 2;
  }
  for (int k = 0; k < kinds; ++k) {
    int wanted = optind == count;
    for (int i = optind; i < count; ++i) wanted |= strcmp(arguments[i], names[k]) == 0;
    setup.kind = (enum collective)k;
    if (wanted) client_run(names[k], setup.ranks, NULL, run);
  }
  return 0;
}
