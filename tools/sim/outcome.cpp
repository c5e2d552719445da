#include "outcome.hpp"

#include <algorithm>

namespace pith_sim {

using namespace pith;
using pith_explain::Candidate;
using pith_explain::Question;

pith_simulated::Call call_of(const Cluster& cluster, const Question& question, const Model& model,
                             std::string_view algorithm) {
  return {find_algorithm(question.collective, algorithm), question.bytes, model.tuning(), 0,
          hosts_of(cluster)};
}

Expected<Outcome> simulate(const Cluster& cluster, const Question& question,
                           const std::vector<std::string>& only) {
  const auto model = pith_explain::model_of(question);
  if (!model) return model.error();
  const pith_explain::Answer answer = pith_explain::answer(question, **model);
  const SimConfig config = config_of(cluster);
  Outcome outcome;
  outcome.bytes = question.bytes;
  outcome.forced = answer.forced;
  for (const Candidate& candidate : answer.candidates) {
    Run run{candidate.name, 0, candidate.seconds(), candidate.closed};
    const bool taken = &candidate == &answer.takes();
    const bool asked = only.empty() || std::find(only.begin(), only.end(), run.name) != only.end();
    if (run.closed.empty() && !taken && !asked) run.closed = "not among --only";
    if (run.closed.empty()) {
      const auto seconds =
          pith_simulated::seconds_of(config, call_of(cluster, question, **model, run.name));
      if (!seconds) return seconds.error();
      run.simulated_s = *seconds;
    }
    outcome.runs.push_back(std::move(run));
  }
  std::stable_sort(outcome.runs.begin(), outcome.runs.end(), [](const Run& a, const Run& b) {
    if (a.closed.empty() != b.closed.empty()) return a.closed.empty();
    return a.simulated_s < b.simulated_s;
  });
  const auto taken = std::find_if(outcome.runs.begin(), outcome.runs.end(),
                                  [&](const Run& run) { return run.name == answer.takes().name; });
  outcome.taken = static_cast<std::size_t>(taken - outcome.runs.begin());
  return outcome;
}

}  // namespace pith_sim
