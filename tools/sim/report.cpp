#include "tools/explain/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "outcome.hpp"

namespace pith_sim {

using pith_explain::name_of_size;
using pith_explain::name_of_time;
using pith_explain::Question;

namespace {

std::string size_of(const Outcome& outcome) {
  return name_of_size(static_cast<double>(outcome.bytes));
}

std::string row(const Outcome& outcome, const Run& run) {
  const bool taken = &run == &outcome.takes();
  const bool ran = run.closed.empty();
  const double ratio = ran ? run.simulated_s / outcome.oracle().simulated_s : 0;
  std::string remark = ran ? fmt::format("{:.2f} times the shortest", ratio) : run.closed;
  if (&run == &outcome.oracle()) remark = "the shortest";
  if (taken) remark = (outcome.forced ? "taken as PITH_ALGO says, " : "taken, ") + remark;
  return fmt::format("{} {:<20} {:>10} {:>10}  {}\n", taken ? '*' : ' ', run.name,
                     ran ? name_of_time(run.simulated_s) : "-", name_of_time(run.predicted_s),
                     remark);
}

}  // namespace

std::string text(const Question& question, const Outcome& outcome) {
  std::string out = pith_explain::heading(question) + "\n\n";
  out += fmt::format("  {:<20} {:>10} {:>10}\n", size_of(outcome) + " bytes", "simulated",
                     "predicted");
  for (const Run& run : outcome.runs) out += row(outcome, run);
  return out + fmt::format("\nThe library takes {}, the oracle {}. Regret: {:.1f} %.\n",
                           outcome.takes().name, outcome.oracle().name, 100 * outcome.regret());
}

std::string table(const std::vector<Outcome>& outcomes) {
  std::string out = fmt::format("{:>10}  {:<20} {:>10} {:>10}  {:<20} {:>10} {:>8}\n", "bytes",
                                "taken", "simulated", "predicted", "oracle", "simulated", "regret");
  double logs = 0;
  double worst = 0;
  for (const Outcome& outcome : outcomes) {
    const Run& takes = outcome.takes();
    const Run& oracle = outcome.oracle();
    out += fmt::format("{:>10}  {:<20} {:>10} {:>10}  {:<20} {:>10} {:>6.1f} %\n", size_of(outcome),
                       takes.name, name_of_time(takes.simulated_s), name_of_time(takes.predicted_s),
                       oracle.name, name_of_time(oracle.simulated_s), 100 * outcome.regret());
    logs += std::log1p(outcome.regret());
    worst = std::max(worst, outcome.regret());
  }
  const double mean = std::expm1(logs / static_cast<double>(outcomes.size()));
  return out + fmt::format("Regret: {:.1f} % in the geometric mean, {:.1f} % at worst.\n",
                           100 * mean, 100 * worst);
}

std::string json(const Question& question, const std::vector<Outcome>& outcomes) {
  nlohmann::json all = {{"collective", std::string(name_of(question.collective))},
                        {"ranks", question.ranks},
                        {"hosts", question.hosts},
                        {"sizes", nlohmann::json::array()}};
  for (const Outcome& outcome : outcomes) {
    nlohmann::json runs = nlohmann::json::array();
    for (const Run& run : outcome.runs) {
      nlohmann::json one = {{"name", run.name}, {"predicted_s", run.predicted_s}};
      if (run.closed.empty()) {
        one["simulated_s"] = run.simulated_s;
      } else {
        one["closed"] = run.closed;
      }
      runs.push_back(std::move(one));
    }
    all["sizes"].push_back({{"bytes", outcome.bytes},
                            {"taken", outcome.takes().name},
                            {"forced", outcome.forced},
                            {"oracle", outcome.oracle().name},
                            {"regret", outcome.regret()},
                            {"runs", std::move(runs)}});
  }
  return all.dump(2) + "\n";
}

}  // namespace pith_sim
