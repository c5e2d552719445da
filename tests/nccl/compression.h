/* Vectors that PITH_COMPRESS compresses, or not: what their sums show. */
#pragma once

#include "client.h"

enum { layers = 3, n = 4096, steps = 12 };

static inline int zeros_in(const float* vector) {
  int zeros = 0;
  for (int i = 0; i < n; ++i) zeros += vector[i] == 0;
  return zeros;
}

static inline void fill(float* vector, float value) {
  for (int i = 0; i < n; ++i) vector[i] = value;
}

static inline void sum_up(struct client* me, ncclComm_t comm, const float* send, float* recv) {
  OK(ncclAllReduce(send, recv, n, ncclFloat32, ncclSum, comm, NULL));
}

/* Of one vector, which is ones; it is compressed from the third time on. */
static inline void sum_ones(struct client* me, ncclComm_t comm, float* send, float* recv) {
  fill(send, 1);
  sum_up(me, comm, send, recv);
}
