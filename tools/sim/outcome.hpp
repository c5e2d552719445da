// Every algorithm's own coroutine in virtual time, beside what the library would take.
#pragma once

#include <string>
#include <vector>

#include "cluster.hpp"
#include "tools/explain/answer.hpp"
#include "tools/simulated/call.hpp"

namespace pith_sim {

struct Run {
  std::string name;
  double simulated_s = 0;
  double predicted_s = 0;  // by the cost function, which knows one link
  std::string closed;      // why it was not run; empty: it was
};

struct Outcome {
  std::size_t bytes = 0;
  std::vector<Run> runs;  // those that were run by time, then the others
  std::size_t taken = 0;
  bool forced = false;  // by PITH_ALGO

  const Run& takes() const { return runs[taken]; }
  const Run& oracle() const { return runs.front(); }
  double regret() const { return takes().simulated_s / oracle().simulated_s - 1; }
};

// The call that a cluster's ranks make by this algorithm.
pith_simulated::Call call_of(const Cluster& cluster, const pith_explain::Question& question,
                             const pith::Model& model, std::string_view algorithm);

// `only`: names of algorithms to run besides the one that the library takes; empty: all.
pith::Expected<Outcome> simulate(const Cluster& cluster, const pith_explain::Question& question,
                                 const std::vector<std::string>& only);

std::string text(const pith_explain::Question& question, const Outcome& outcome);
std::string table(const std::vector<Outcome>& outcomes);
// Time by size, a line for every algorithm; dots mark what the library takes.
std::string svg(const pith_explain::Question& question, const std::vector<Outcome>& outcomes);
std::string json(const pith_explain::Question& question, const std::vector<Outcome>& outcomes);

}  // namespace pith_sim
