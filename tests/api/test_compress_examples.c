/* How a training program uses compressors: one a layer with calls in a group, or one for a whole
 * model whose gradients are added into the compressor's memory. C99, as a C user writes it. */
#include <stdio.h>
#include <stdlib.h>

#include "pith/pith.h"

enum { ranks = 2, layers = 3, steps = 4, all_elements = 700 };
static const size_t layer_elements[layers] = {500, 80, 120};

static int check(pithResult_t result, const char* what) {
  if (result == pithSuccess) return 0;
  fprintf(stderr, "%s: %s: %s\n", what, pithGetErrorString(result), pithGetLastError(NULL));
  return 1;
}

/* What back-propagation would give. */
static float gradient_of(int rank, int step, size_t i) {
  return (float)((i * 7919 + (size_t)(rank * 31 + step * 17)) % 101) - 50.0f;
}

/* Nothing is lost: all gradients are in the sums or in the residuals. All numbers are whole and
 * small, so that float32 adds them exactly. */
static int check_sums(const char* what, float (*sums)[all_elements],
                      float (*residuals)[all_elements]) {
  for (int i = 0; i < all_elements; ++i) {
    float given = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      for (int step = 0; step < steps; ++step) given += gradient_of(rank, step, (size_t)i);
    }
    if (sums[0][i] != sums[1][i] || sums[0][i] + residuals[0][i] + residuals[1][i] != given) {
      fprintf(stderr, "%s: element %d\n", what, i);
      return 1;
    }
  }
  return 0;
}

static float sums[ranks][all_elements];
static float residuals[ranks][all_elements];

/* One compressor a layer: in one group their calls cost one exchange. */
static int train_by_layer(pithComm_t* comms) {
  static float gradients[ranks][all_elements];
  static float received[ranks][all_elements];
  pithCompressor_t compressors[ranks][layers];
  int failures = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int layer = 0; layer < layers; ++layer) {
      failures +=
          check(pithCompressorCreate(&compressors[rank][layer], "topk:density=0.05,bypass=never"),
                "create");
    }
    for (int i = 0; i < all_elements; ++i) sums[rank][i] = 0;
  }
  if (failures) return failures;
  for (int step = 0; step < steps; ++step) {
    failures += check(pithGroupStart(), "group start");
    for (int rank = 0; rank < ranks; ++rank) { /* in a real program each process has one rank */
      size_t begin = 0;
      for (int i = 0; i < all_elements; ++i) {
        gradients[rank][i] = gradient_of(rank, step, (size_t)i);
      }
      for (int layer = 0; layer < layers; ++layer) {
        failures += check(pithAllReduceCompressed(gradients[rank] + begin, received[rank] + begin,
                                                  layer_elements[layer], pithFloat32, pithSum,
                                                  compressors[rank][layer], comms[rank], NULL),
                          "call");
        begin += layer_elements[layer];
      }
    }
    failures += check(pithGroupEnd(), "group end");
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < all_elements; ++i) sums[rank][i] += received[rank][i];
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    size_t begin = 0;
    for (int layer = 0; layer < layers; ++layer) {
      failures += check(pithCompressorGetResidual(compressors[rank][layer], residuals[rank] + begin,
                                                  layer_elements[layer]),
                        "residual");
      begin += layer_elements[layer];
      failures += check(pithCompressorDestroy(compressors[rank][layer]), "destroy");
    }
  }
  return failures + check_sums("by layer", sums, residuals);
}

/* One for the whole model. Gradients are added into its memory, which is the send buffer too, and
 * the sum comes as pairs that the optimizer adds where they belong. */
static int train_whole_model(pithComm_t* comms) {
  static uint64_t indices[ranks][all_elements];
  static float values[ranks][all_elements];
  size_t n[ranks] = {0, 0};
  pithCompressor_t compressors[ranks];
  void* memory[ranks];
  int failures = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    failures +=
        check(pithCompressorCreate(&compressors[rank], "topk:density=0.05,bypass=never"), "create");
    if (failures) return failures;
    failures += check(
        pithCompressorGetAccumulator(compressors[rank], &memory[rank], all_elements, pithFloat32),
        "accumulator");
    for (int i = 0; i < all_elements; ++i) sums[rank][i] = 0;
  }
  for (int step = 0; step < steps && !failures; ++step) {
    failures += check(pithGroupStart(), "group start");
    for (int rank = 0; rank < ranks; ++rank) {
      float* accumulator = memory[rank];
      for (int i = 0; i < all_elements; ++i) accumulator[i] += gradient_of(rank, step, (size_t)i);
      failures +=
          check(pithAllReduceCompressedSparse(accumulator, indices[rank], values[rank],
                                              all_elements, &n[rank], all_elements, pithFloat32,
                                              pithSum, compressors[rank], comms[rank], NULL),
                "call");
    }
    failures += check(pithGroupEnd(), "group end");
    for (int rank = 0; rank < ranks; ++rank) {
      for (size_t i = 0; i < n[rank]; ++i) sums[rank][indices[rank][i]] += values[rank][i];
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    pithCompressorStats_t stats;
    stats.size = sizeof stats;
    failures += check(pithCompressorGetStats(compressors[rank], &stats), "stats");
    failures += stats.calls != steps || stats.selected_local != all_elements / 20;
    failures += check(pithCompressorGetResidual(compressors[rank], residuals[rank], all_elements),
                      "residual");
    failures += check(pithCompressorDestroy(compressors[rank]), "destroy");
  }
  return failures + check_sums("whole model", sums, residuals);
}

int main(void) {
  pithComm_t comms[ranks];
  int failures = check(pithCommInitAll(comms, ranks, NULL), "init");
  if (failures) return 1;
  failures += train_by_layer(comms);
  failures += train_whole_model(comms);
  for (int rank = 0; rank < ranks; ++rank) failures += check(pithCommDestroy(comms[rank]), "end");
  return failures != 0;
}
