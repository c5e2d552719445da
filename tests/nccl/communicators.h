/* What clients do with any communicator. */
#pragma once

#include <unistd.h>

#include "client.h"

static inline float sum_over(struct client* me, ncclComm_t comm, float mine) {
  float sum = 0;
  OK(ncclAllReduce(&mine, &sum, 1, ncclFloat32, ncclSum, comm, NULL));
  return sum;
}

/* Waits for what blocking = 0 has begun. */
static inline ncclResult_t settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
    usleep(100);
  }
  return state;
}
