// Training with the ranks' gradients, or their parameters, averaged by one scheme: dense, or with a
// compressor.
#pragma once

#include <array>
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
  std::string spec;  // a spec for pithCompressorCreate(); "dense": pithAllReduce()
  std::size_t steps = 110;
  std::size_t batch = 32;  // per rank
  float rate = 0.2F;       // constant
  float momentum = 0.0F;
  std::uint64_t seed = 1998;
  std::size_t evaluate_every = 5;  // in steps
  double enough = 2.0;             // the accuracy, 0 to 1, with which the training ends
};

struct CurvePoint {
  double seconds;   // of training; the clock is stopped during evaluation
  double accuracy;  // on the test set, 0 to 1
};

// How the library makes the calls from a step on, as the largest layer tells.
struct SchemeChoice {
  std::size_t step;
  double seconds;  // of training before it
  double density;  // 1: all elements were sent
  std::array<char, 32> algorithm;
};

// The same on all ranks, except the seconds and, where ranks have models of their own, parameters
// and density. Accuracy and loss are then the means over the ranks, each of its own model on all
// samples.
struct SchemeRun {
  std::vector<CurvePoint> curve;
  std::vector<SchemeChoice> choices;  // each is another than the one before; none if dense
  std::size_t steps = 0;
  double seconds = 0.0;
  double accuracy = 0.0;          // at the end
  double loss = 0.0;              // at the end, mean over the training set
  double density = 1.0;           // distinct elements sent / all, mean over the steps
  std::vector<float> parameters;  // at the end
};

// Whether the scheme averages parameters, as `choco` does. Each rank then has a model of its own:
// it makes a step by its own gradient, and averages its parameters with its neighbours'. With other
// schemes all ranks make the same step, by the average of their gradients.
bool averages_parameters(const std::string& spec);

// One rank's part; all ranks call it with the same plan. Each layer has its own compressor, and a
// step's calls form one group. Throws std::runtime_error with Pith's message.
// `between_steps` gets the number of steps done, before the first step too; the clock stands still.
SchemeRun train_with_scheme(
    const SchemePlan& plan, const Dataset& data, Model model, pithComm_t comm, int ranks, int rank,
    const std::function<void(std::size_t)>& between_steps = [](std::size_t) {});

}  // namespace pith::demo
