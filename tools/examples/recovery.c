/* Goes on with the ranks that are left when one dies: the loop of a program that runs for days.
 *
 *     mpirun --enable-recovery -n 3 ./recovery [RANK_THAT_DIES] */
#include <pith/pith.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { elements = 1000, steps = 20 };

struct training {
  pithComm_t comm;
  int step;
  float state[elements];
};

static void must(pithResult_t result, const char* what) {
  if (result == pithSuccess) return;
  fprintf(stderr, "%s: %s: %s\n", what, pithGetErrorString(result), pithGetLastError(NULL));
  exit(1);
}

/* One step: a new state, on all ranks the same. After an error the old one is as it was. */
static pithResult_t advance(struct training* training) {
  float gradient[elements], mean[elements];
  for (int i = 0; i < elements; ++i) gradient[i] = 1.0f + (float)training->step;
  pithResult_t result =
      pithAllReduce(gradient, mean, elements, pithFloat32, pithAvg, training->comm, NULL);
  if (result != pithSuccess) return result;
  for (int i = 0; i < elements; ++i) training->state[i] += mean[i];
  ++training->step;
  return pithSuccess;
}

/* A rank may have finished a step that another has not: all go on from the earliest. */
static pithResult_t agree(struct training* training) {
  int ranks, earliest = 0;
  must(pithCommCount(training->comm, &ranks), "pithCommCount");
  int* reached = malloc((size_t)ranks * sizeof *reached);
  if (!reached) abort();
  pithResult_t result = pithAllGather(&training->step, reached, 1, pithInt32, training->comm, NULL);
  if (result == pithSuccess) {
    for (int rank = 1; rank < ranks; ++rank) {
      if (reached[rank] < reached[earliest]) earliest = rank;
    }
    training->step = reached[earliest];
    result = pithBcast(training->state, elements, pithFloat32, earliest, training->comm, NULL);
  }
  free(reached);
  return result;
}

/* A communicator of the survivors. If more die meanwhile, once more. */
static void go_on_without_the_dead(struct training* training) {
  pithResult_t result;
  do {
    pithComm_t smaller;
    must(pithCommShrink(training->comm, NULL, 0, &smaller, NULL, PITH_SHRINK_DEFAULT),
         "pithCommShrink");
    pithCommAbort(training->comm);
    training->comm = smaller;
    result = agree(training);
  } while (result == pithRemoteError);
  must(result, "agreeing on the step");
}

int main(int argc, char** argv) {
  static struct training training;
  int name, ranks; /* the rank as the job was started: a smaller communicator numbers them anew */
  const int victim = argc > 1 ? atoi(argv[1]) : -1;
  must(pithCommInitEnv(&training.comm), "pithCommInitEnv");
  must(pithCommUserRank(training.comm, &name), "pithCommUserRank");
  while (training.step < steps) {
    if (training.step == steps / 2 && name == victim) kill(getpid(), SIGKILL);
    pithResult_t result = advance(&training);
    if (result == pithRemoteError) {
      printf("rank %d: step %d: %s\n", name, training.step, pithGetLastError(training.comm));
      fflush(stdout);
      go_on_without_the_dead(&training);
    } else {
      must(result, "pithAllReduce");
    }
  }
  must(pithCommCount(training.comm, &ranks), "pithCommCount");
  printf("rank %d: %d ranks have finished, state %g\n", name, ranks, (double)training.state[0]);
  must(pithCommDestroy(training.comm), "pithCommDestroy");
  return 0;
}
