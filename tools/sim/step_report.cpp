#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "steps.hpp"
#include "tools/drawing/chart.hpp"
#include "tools/explain/report.hpp"

namespace pith_sim {

using pith_explain::name_of_size;
using pith_explain::name_of_time;

namespace {

std::string density_of(const StepRun& run) {
  return run.density ? fmt::format("{}", *run.density) : "-";
}

std::size_t longest_name(const StepOutcome& outcome) {
  std::size_t longest = 0;
  for (const StepRun& run : outcome.runs) longest = std::max(longest, run.name.size());
  return longest;
}

std::string row(const StepQuestion& question, const StepOutcome& outcome, const StepRun& run) {
  const double step_s = question.compute_s + run.exchange_s;
  const double dense_s = question.compute_s + outcome.best_dense().exchange_s;
  return fmt::format("{} {:>9}  {:<{}} {:>10} {:>10} {:>10} {:>8}\n", run.taken ? '*' : ' ',
                     density_of(run), run.name, longest_name(outcome), name_of_time(run.exchange_s),
                     name_of_time(run.predicted_s), name_of_time(step_s),
                     run.gossips ? "no sum" : fmt::format("{:.2f}", dense_s / step_s));
}

// Of the compressed ones with this density, sums and steps of gossip each by themselves.
bool is_shortest(const StepOutcome& outcome, const StepRun& run) {
  const auto is_shorter = [&](const StepRun& other) {
    return other.compressed && other.gossips == run.gossips && other.density == run.density &&
           other.exchange_s < run.exchange_s;
  };
  return run.compressed && std::ranges::none_of(outcome.runs, is_shorter);
}

// What the shortest with its density takes, and how that is to dense.
std::string verdict(const StepQuestion& question, const StepOutcome& outcome, const StepRun& best) {
  const double step_s = question.compute_s + best.exchange_s;
  const double dense_s = question.compute_s + outcome.best_dense().exchange_s;
  const std::string at = best.density ? fmt::format("density {}", *best.density) : best.name;
  const std::string by = best.density ? fmt::format(" by {}", best.name) : "";
  const std::string than_dense =
      best.gossips ? "gossip with neighbours, which is no sum"
                   : fmt::format("{:.2f} times as fast as dense", dense_s / step_s);
  return fmt::format("{}: a step of {}{}, {}\n", at, name_of_time(step_s), by, than_dense);
}

std::string verdicts(const StepQuestion& question, const StepOutcome& outcome) {
  const StepRun& dense = outcome.best_dense();
  std::string out = fmt::format("dense: a step of {} by {}\n",
                                name_of_time(question.compute_s + dense.exchange_s), dense.name);
  std::vector<const StepRun*> shortest;
  for (const StepRun& run : outcome.runs) {
    if (is_shortest(outcome, run)) shortest.push_back(&run);
  }
  std::ranges::stable_sort(shortest, {}, &StepRun::density);
  for (const StepRun* run : shortest) out += verdict(question, outcome, *run);
  return out;
}

std::string outcome_text(const StepQuestion& question, const StepOutcome& outcome) {
  const std::string size = name_of_size(static_cast<double>(outcome.bytes));
  std::string out =
      fmt::format("\n{} bytes, {} elements\n  {:>9}  {:<{}} {:>10} {:>10} {:>10} {:>8}\n", size,
                  outcome.bytes / 4, "density", "", longest_name(outcome), "simulated", "predicted",
                  "step", "speed-up");
  for (const StepRun& run : outcome.runs) out += row(question, outcome, run);
  return out + verdicts(question, outcome);
}

pith_drawing::Point point_of(const StepQuestion& question, const StepOutcome& outcome,
                             const StepRun& run, bool by_size) {
  return {by_size ? static_cast<double>(outcome.bytes) : *run.density,
          question.compute_s + run.exchange_s};
}

// A dense way has no density: it is as long at all of them.
void add_level(const StepQuestion& question, const StepRun& run, pith_drawing::ChartLine& line) {
  std::vector<double> densities = question.densities;
  for (const std::string& text : question.specs) {
    const pith::Spec spec = *pith::Spec::parse(text);
    if (question.densities.empty() && spec.sparse()) densities.push_back(spec.density);
  }
  std::ranges::sort(densities);
  for (const double density : densities) {
    line.points.push_back({density, question.compute_s + run.exchange_s});
  }
}

}  // namespace

std::string text(const Cluster& cluster, const StepQuestion& question,
                 const std::vector<StepOutcome>& outcomes) {
  std::string out = pith_explain::heading(question_of(cluster, pith::Collective::allreduce, 0));
  out += fmt::format(
      "\nA step computes {} and then sums float32 by one of these. *: the library takes it, given "
      "the scheme and density; none of a scheme: bypass=auto makes the call dense\n",
      question.compute_s > 0 ? name_of_time(question.compute_s) : "nothing");
  for (const StepOutcome& outcome : outcomes) out += outcome_text(question, outcome);
  return out;
}

std::string json(const Cluster& cluster, const StepQuestion& question,
                 const std::vector<StepOutcome>& outcomes) {
  nlohmann::json all = {{"collective", "allreduce"},
                        {"ranks", cluster.ranks()},
                        {"hosts", cluster.hosts()},
                        {"compute_s", question.compute_s},
                        {"sizes", nlohmann::json::array()}};
  for (const StepOutcome& outcome : outcomes) {
    nlohmann::json runs = nlohmann::json::array();
    for (const StepRun& run : outcome.runs) {
      nlohmann::json one = {{"name", run.name},
                            {"compressed", run.compressed},
                            {"simulated_s", run.exchange_s},
                            {"predicted_s", run.predicted_s},
                            {"step_s", question.compute_s + run.exchange_s},
                            {"taken", run.taken}};
      if (run.density) one["density"] = *run.density;
      if (run.gossips) one["gossips"] = true;
      runs.push_back(std::move(one));
    }
    all["sizes"].push_back({{"bytes", outcome.bytes},
                            {"best", outcome.best().name},
                            {"best_dense", outcome.best_dense().name},
                            {"runs", std::move(runs)}});
  }
  return all.dump(2) + "\n";
}

std::string svg(const Cluster& cluster, const StepQuestion& question,
                const std::vector<StepOutcome>& outcomes) {
  const bool by_size = outcomes.size() > 1;
  pith_drawing::Chart chart;
  chart.title = pith_explain::heading(question_of(cluster, pith::Collective::allreduce, 0));
  chart.subtitle =
      fmt::format("simulated step, {} of it computing, by {}; dots: the shortest compressed",
                  name_of_time(question.compute_s), by_size ? "bytes" : "density");
  chart.x_name =
      by_size ? name_of_size : +[](double density) { return fmt::format("{:g}", density); };
  chart.x_base = by_size ? 2 : 10;
  chart.y_name = name_of_time;
  std::map<std::string, pith_drawing::ChartLine> lines;
  for (const StepOutcome& outcome : outcomes) {
    for (const StepRun& run : outcome.runs) {
      const std::string name =
          by_size && run.density ? fmt::format("{}, {}", run.name, *run.density) : run.name;
      pith_drawing::ChartLine& line = lines[name];
      line.name = name;
      if (!by_size && !run.density) {
        add_level(question, run, line);
        continue;
      }
      line.points.push_back(point_of(question, outcome, run, by_size));
      const bool marked = by_size ? &run == &outcome.best() : is_shortest(outcome, run);
      if (marked) line.marks.push_back(line.points.back());
    }
  }
  for (auto& [name, line] : lines) chart.lines.push_back(std::move(line));
  return draw(chart);
}

}  // namespace pith_sim
