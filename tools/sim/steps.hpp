// What a training step takes that computes and then sums gradients, dense or compressed: which
// density and which exchange.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cluster.hpp"
#include "compress/spec.hpp"
#include "core/error.hpp"

namespace pith_sim {

// One way of making the call.
struct StepRun {
  std::string name;  // "ring", "topk:exchange=split"
  bool compressed = false;
  bool gossips = false;                // another operation, which is compared with no sum
  std::optional<double> density = {};  // of a scheme that elects
  double exchange_s = 0;               // in virtual time
  double predicted_s = 0;              // by the cost function
  bool taken = false;                  // by the library, given the scheme and the density
};

struct StepOutcome {
  std::size_t bytes = 0;
  std::vector<StepRun> runs;  // dense ones, then by scheme and density; each group by time

  const StepRun& best_dense() const { return runs.front(); }
  const StepRun& best() const;  // of those that sum
};

struct StepQuestion {
  std::vector<std::string> specs;  // as "topk:density=0.01"; keys that it fixes are not varied
  std::vector<double> densities;   // empty: those of the specs
  double compute_s = 0;            // of a step, before its exchange
};

// Mistakes in the specs, before anything is run.
pith::Error check(const StepQuestion& question);
pith::Expected<StepOutcome> simulate_steps(const Cluster& cluster, const StepQuestion& question,
                                           std::size_t bytes);

std::string text(const Cluster& cluster, const StepQuestion& question,
                 const std::vector<StepOutcome>& outcomes);
std::string json(const Cluster& cluster, const StepQuestion& question,
                 const std::vector<StepOutcome>& outcomes);
// Seconds of a step by density, or by bytes if there are several sizes.
std::string svg(const Cluster& cluster, const StepQuestion& question,
                const std::vector<StepOutcome>& outcomes);

}  // namespace pith_sim
