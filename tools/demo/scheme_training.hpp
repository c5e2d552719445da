// Training in which the ranks' gradients are averaged by one scheme: dense, or by a compressor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pith/pith.h"
#include "tools/demo/dataset.hpp"
#include "tools/demo/model.hpp"

namespace pith::demo {

struct SchemePlan {
  std::string spec;  // a compressor's, as pithCompressorCreate() takes it; "dense": pithAllReduce()
  std::size_t steps = 110;
  std::size_t batch = 32;  // per rank
  float rate = 0.2F;       // constant
  float momentum = 0.0F;
  std::uint64_t seed = 1998;
  std::size_t evaluate_every = 5;  // steps
};

struct CurvePoint {
  double seconds;   // of training; the clock stands still while the accuracy is measured
  double accuracy;  // on the test set, 0 to 1
};

// The same on all ranks, but for the seconds.
struct SchemeRun {
  std::vector<CurvePoint> curve;
  double seconds = 0.0;
  double accuracy = 0.0;  // at the end
  double loss = 0.0;      // at the end, mean over the training set
  double density = 1.0;   // distinct elements that moved / all, mean over the steps
};

// One rank's part; all ranks call it with the same plan. Layer-wise: every layer's gradient has a
// compressor of its own, and those of a step travel in one group. Throws std::runtime_error with
// Pith's message. `after_step` is told the number of steps done.
SchemeRun train_with_scheme(
    const SchemePlan& plan, const Dataset& data, Model model, pithComm_t comm, int ranks, int rank,
    const std::function<void(std::size_t)>& after_step = [](std::size_t) {});

}  // namespace pith::demo
