/* A program made for NCCL, which knows nothing of Pith. On Pith it runs so:
 *
 *     LD_PRELOAD=$PWD/build/lib/libnccl.so.2 ./nccl_program
 *
 * On a machine without a CUDA driver, Pith takes host memory and stream 0, as here; a real program
 * has device memory and a stream of its own. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ranks = 2, elements = 1 << 16 };

static void must(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  fprintf(stderr, "%s: %s\n", what, ncclGetErrorString(result));
  exit(1);
}

static void run_rank(int rank, ncclUniqueId id) {
  static float gradient[elements], sum[elements];
  ncclComm_t comm;
  must(ncclCommInitRank(&comm, ranks, id, rank), "ncclCommInitRank");
  for (int i = 0; i < elements; ++i) gradient[i] = (float)(rank + 1);
  must(ncclAllReduce(gradient, sum, elements, ncclFloat32, ncclSum, comm, NULL), "ncclAllReduce");
  must(ncclBroadcast(gradient, gradient, elements, ncclFloat32, 1, comm, NULL), "ncclBroadcast");
  printf("rank %d: the sum is %g, rank 1 has %g\n", rank, (double)sum[elements - 1],
         (double)gradient[0]);
  must(ncclCommDestroy(comm), "ncclCommDestroy");
}

int main(void) {
  int version, status, between[2];
  ncclUniqueId id;
  must(ncclGetVersion(&version), "ncclGetVersion");
  printf("NCCL %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
  fflush(stdout);
  if (pipe(between) != 0) return 1;
  const pid_t other = fork();
  if (other < 0) return 1;
  if (other == 0) {
    close(between[1]); /* so that the read ends if the parent does */
    if (read(between[0], &id, sizeof id) != sizeof id) return 1;
    run_rank(1, id);
    return 0;
  }
  must(ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (write(between[1], &id, sizeof id) != sizeof id) return 1;
  run_rank(0, id);
  return waitpid(other, &status, 0) != other || status != 0;
}
