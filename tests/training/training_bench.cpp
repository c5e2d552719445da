// training_bench: trains the demo's network by one scheme of averaging after another; a line of
// JSON per scheme, from rank 0. Before each block of steps it says "block N" on its output and
// waits for a line on its input, so that who started it can change the links meanwhile:
// training_lab.py does.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "frame/rank_main.hpp"
#include "frame/team.hpp"
#include "tools/demo/dataset.hpp"
#include "tools/demo/model.hpp"
#include "tools/demo/scheme_training.hpp"

namespace {

using namespace pith_perf;
using pith::demo::SchemeRun;

struct Settings {
  int ranks = 0;
  std::string data = PITH_DEMO_DATA;
  std::string out;
  std::vector<std::string> schemes;
  std::size_t block = 0;
  pith::demo::SchemePlan plan;
};

void add_options(CLI::App& app, Settings& settings) {
  app.add_option("--ranks", settings.ranks, "processes to start here; 0: a launcher has started");
  app.add_option("--scheme", settings.schemes, "a compressor's spec, or dense")->required();
  app.add_option("--block", settings.block, "steps of a block; 0: all steps are one");
  app.add_option("--steps", settings.plan.steps)->check(CLI::PositiveNumber);
  app.add_option("--batch", settings.plan.batch, "samples per rank and step");
  app.add_option("--rate", settings.plan.rate, "learning rate");
  app.add_option("--seed", settings.plan.seed);
  app.add_option("--enough", settings.plan.enough, "the accuracy with which a training ends");
  app.add_option("--evaluate-every", settings.plan.evaluate_every, "steps");
  app.add_option("--out", settings.out, "lines of JSON, of rank 0")->required();
}

// Rank 0 alone: the others wait for it in the step.
void announce(std::size_t block) {
  fmt::print("block {}\n", block);
  std::fflush(stdout);
  std::string answer;
  if (!std::getline(std::cin, answer)) throw std::runtime_error("no answer to a block's number");
}

nlohmann::ordered_json record_of(const pith::demo::SchemePlan& plan, const SchemeRun& run) {
  nlohmann::ordered_json record;
  record["scheme"] = plan.spec;
  record["seed"] = plan.seed;
  record["steps"] = run.steps;
  record["evaluate_every"] = plan.evaluate_every;
  record["seconds"] = run.seconds;
  record["accuracy"] = run.accuracy;
  record["loss"] = run.loss;
  record["density"] = run.density;
  for (const auto& point : run.curve) {
    record["curve"].push_back({point.seconds, point.accuracy});
  }
  for (const auto& one : run.choices) {
    record["choices"].push_back({one.step, one.seconds, one.density, one.algorithm.data()});
  }
  return record;
}

void measure(Settings settings, const Start& start) {
  const pith::demo::Dataset data =
      pith::demo::split_digits(pith::demo::read_digits(settings.data), settings.plan.seed);
  std::ofstream out;
  if (start.process == 0) out.open(settings.out);
  if (start.process == 0 && !out) throw std::runtime_error(settings.out + ": cannot be written");
  Team team(join(start.id, start.process, 1, start.processes), start.process, start.processes);
  const auto between_steps = [&](std::size_t done) {
    const bool begins = settings.block != 0 && done % settings.block == 0;
    if (begins && start.process == 0) announce(done / settings.block);
  };
  for (const std::string& spec : settings.schemes) {
    settings.plan.spec = spec;
    const SchemeRun run =
        pith::demo::train_with_scheme(settings.plan, data, pith::demo::demo_model(), team.comm(0),
                                      start.processes, start.process, between_steps);
    if (start.process == 0) out << record_of(settings.plan, run).dump() << std::endl;
  }
  team.close();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("trains the demo's network by schemes of averaging", "training_bench");
  Settings settings;
  add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  return run_ranks("training_bench", settings.ranks, false,
                   [&](const Start& start) { measure(settings, start); });
}
