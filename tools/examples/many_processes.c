/* Learns a vector together: every process has a noisy copy of it, and only gradients are sent, of
 * which a compressor sends the largest part.
 *
 *     mpirun -n 4 ./many_processes
 *     srun -n 4 ./many_processes
 *     torchrun --nproc_per_node 4 --no_python ./many_processes */
#include <math.h>
#include <pith/pith.h>
#include <stdio.h>
#include <stdlib.h>

enum { elements = 20000, steps = 200 };
static const float rate = 0.1f;
static const char* const spec = "topk:density=0.05,bypass=never";

/* Ends the process: the calls of the other ranks then fail, with an error that names this one. */
static void must(pithResult_t result, const char* what) {
  if (result == pithSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", what, pithGetErrorString(result), pithGetLastError(NULL));
  exit(1);
}

static float wanted(int i) { return sinf((float)i); }

/* Between -0.5 and 0.5; other numbers in each process. */
static float noise(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / (float)(1 << 24) - 0.5f;
}

static double error_of(const float* weights) {
  double sum = 0;
  for (int i = 0; i < elements; ++i) sum += fabs((double)(weights[i] - wanted(i)));
  return sum / elements;
}

int main(void) {
  static float weights[elements], gradient[elements], mean[elements];
  pithComm_t comm;
  pithCompressor_t compressor;
  int rank, size;
  must(pithCommInitEnv(&comm), "pithCommInitEnv");
  must(pithCommUserRank(comm, &rank), "pithCommUserRank");
  must(pithCommCount(comm, &size), "pithCommCount");
  must(pithCompressorCreate(&compressor, spec), "pithCompressorCreate");
  if (rank == 0) printf("%d processes, error %.3f\n", size, error_of(weights));

  unsigned random = 1u + (unsigned)rank;
  for (int step = 1; step <= steps; ++step) {
    for (int i = 0; i < elements; ++i) gradient[i] = weights[i] - wanted(i) + noise(&random);
    must(pithAllReduceCompressed(gradient, mean, elements, pithFloat32, pithAvg, compressor, comm,
                                 NULL),
         "pithAllReduceCompressed");
    for (int i = 0; i < elements; ++i) weights[i] -= rate * mean[i];
    if (rank == 0 && step % 50 == 0) {
      pithCompressorStats_t stats = {.size = sizeof stats};
      must(pithCompressorGetStats(compressor, &stats), "pithCompressorGetStats");
      printf("step %d: error %.3f, %.1f%% of the gradient sent\n", step, error_of(weights),
             100 * stats.density);
    }
  }

  /* All ranks have computed the same bits, so no sum of differences is left. */
  double mine = 0, most = 0, least = 0;
  for (int i = 0; i < elements; ++i) mine += (double)weights[i] * (i % 7 + 1);
  must(pithAllReduce(&mine, &most, 1, pithFloat64, pithMax, comm, NULL), "pithAllReduce");
  must(pithAllReduce(&mine, &least, 1, pithFloat64, pithMin, comm, NULL), "pithAllReduce");
  if (rank == 0) printf("the weights are %s on all ranks\n", most == least ? "equal" : "different");
  pithCompressorDestroy(compressor);
  must(pithCommDestroy(comm), "pithCommDestroy");
  return most == least ? 0 : 1;
}
