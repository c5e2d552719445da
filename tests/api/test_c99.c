/* A C99 program on the public header and the library alone: what a C user writes. */
#include <stdio.h>
#include <string.h>

#include "pith/pith.h"

static int check(pithResult_t result, const char* what) {
  if (result == pithSuccess) return 0;
  fprintf(stderr, "%s: %s: %s\n", what, pithGetErrorString(result), pithGetLastError(NULL));
  return 1;
}

int main(void) {
  enum { ranks = 2, count = 1000 };
  pithComm_t comms[ranks];
  static float send[count];
  static float recv[ranks][count];
  pithUniqueId id;
  int version = 0;
  int failures = 0;
  if (sizeof id != PITH_UNIQUE_ID_BYTES || sizeof id.internal != PITH_UNIQUE_ID_BYTES) return 1;
  for (int i = 0; i < count; ++i) send[i] = (float)i;
  failures += check(pithGetVersion(&version), "version");
  failures += version != PITH_VERSION_CODE;
  failures += check(pithCommInitAll(comms, ranks, NULL), "init");
  if (failures) return 1;
  failures += check(pithGroupStart(), "group start");
  for (int r = 0; r < ranks; ++r) {
    failures += check(pithAllReduce(send, recv[r], count, pithFloat32, pithSum, comms[r], NULL),
                      "allreduce");
  }
  failures += check(pithGroupEnd(), "group end");
  for (int r = 0; r < ranks; ++r) {
    for (int i = 0; i < count; ++i) failures += recv[r][i] != 2.0f * (float)i;
    failures += check(pithCommDestroy(comms[r]), "destroy");
  }
  failures += pithGetVersion(NULL) != pithInvalidArgument;
  failures += strstr(pithGetLastError(NULL), "version") == NULL;
  return failures != 0;
}
