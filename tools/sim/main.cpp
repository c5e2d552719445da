// pith-sim: what a call would take on a cluster that a file describes, by every algorithm.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "outcome.hpp"
#include "steps.hpp"
#include "tools/explain/report.hpp"
#include "tools/files.hpp"
#include "tools/trace/picture.hpp"
#include "tools/version.hpp"

namespace {

using namespace pith_sim;
using pith::Code;
using pith::Error;
using pith::Expected;
using pith_explain::Question;
using pith_explain::Sizes;

struct Options {
  std::string cluster;
  std::string collective = "allreduce";
  std::string bytes = "1M";  // or LO:HI
  int ranks = 0;             // 0: all of the cluster
  std::vector<std::string> only;
  std::string trace;
  std::string traced;  // empty: what the library takes
  std::string svg;
  std::vector<std::string> compress;
  std::vector<double> densities;
  double compute_s = 0;
  bool json = false;
};

// A what-if of training steps, whose options go together.
void add_step_options(CLI::App& app, Options& options) {
  const CLI::AsNumberWithUnit seconds(
      std::map<std::string, double>{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}});
  CLI::Option* const compress =
      app.add_option("--compress", options.compress,
                     "a spec as topk or ar-topk:values=bf16, run with random gradients beside the "
                     "dense\nalgorithms, in all its exchanges; may be given several times")
          ->allow_extra_args(false);
  app.add_option("--densities", options.densities,
                 "that the specs are run with, instead of their own: 0.001,0.01,0.1")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->needs(compress);
  app.add_option("--compute", options.compute_s, "of each step, before its exchange: 20ms")
      ->transform(seconds)
      ->check(CLI::NonNegativeNumber)
      ->needs(compress);
  for (const char* const other : {"--only", "--trace", "--traced"}) compress->excludes(other);
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("cluster", options.cluster,
                 "JSON, as {\"hosts\": 4, \"ranks_per_host\": 8, \"inside\": \"shm\",\n"
                 "\"between\": \"10g,+5ms\", \"uplink\": \"shared\"}; all keys: "
                 "tools/sim/cluster.hpp")
      ->required();
  app.add_option("--collective", options.collective, "as in PITH_ALGO")->capture_default_str();
  app.add_option("--bytes", options.bytes,
                 "of the vector, or of each rank's block: 64K; LO:HI: each twice the last")
      ->capture_default_str();
  app.add_option("--ranks", options.ranks, "the first so many of the cluster, else all");
  app.add_option("--only", options.only, "algorithms to run besides the one taken, as ring,direct")
      ->delimiter(',');
  app.add_option("--trace", options.trace, "writes a Chrome/Perfetto trace of one call");
  app.add_option("--traced", options.traced, "by this algorithm, else by the one taken");
  app.add_option("--svg", options.svg,
                 "writes a picture of time by size, or by density, to this file");
  add_step_options(app, options);
  app.add_flag("--json", options.json, "prints JSON instead of text");
}

Error wrong(std::string_view flag, std::string_view value, const std::string& expected) {
  return {Code::invalid_argument, fmt::format("{} is \"{}\", expected {}", flag, value, expected)};
}

Expected<Cluster> cluster_of(const Options& options) {
  const Expected<std::string> text = pith_tools::read_file(options.cluster);
  if (!text) return text.error();
  Expected<Cluster> cluster = read_cluster(*text, options.cluster);
  if (!cluster || options.ranks == 0) return cluster;
  return with_ranks(*cluster, options.ranks);
}

Expected<Sizes> sizes_of(const Options& options) {
  if (options.bytes.find(':') != std::string::npos) {
    return pith_explain::parse_sizes("--bytes", options.bytes);
  }
  const Expected<std::size_t> bytes = pith_explain::parse_size("--bytes", options.bytes);
  if (!bytes) return bytes.error();
  return Sizes{*bytes, *bytes};
}

// Whether these are algorithms of the collective.
Error check_names(std::string_view flag, const std::vector<std::string>& names,
                  pith::Collective collective) {
  std::string known;
  for (const pith::Algorithm& algorithm : pith::algorithms()) {
    if (algorithm.collective != collective) continue;
    known += (known.empty() ? "" : ", ") + std::string(algorithm.name);
  }
  for (const std::string& name : names) {
    if (!pith::find_algorithm(collective, name)) return wrong(flag, name, "one of " + known);
  }
  return {};
}

Error write_trace(const Options& options, const Cluster& cluster, const Question& question,
                  const std::string& algorithm) {
  const auto model = pith_explain::model_of(question);
  if (!model) return model.error();
  const auto texts =
      pith_simulated::traces_of(config_of(cluster), call_of(cluster, question, **model, algorithm));
  if (!texts) return texts.error();
  std::vector<pith_trace::RankTrace> ranks;
  for (const std::string& text : *texts) {
    auto rank = pith_trace::read_trace(text, "simulated rank");
    if (!rank) return rank.error();
    ranks.push_back(std::move(*rank));
  }
  const auto picture = pith_trace::picture_of(std::move(ranks), 1);
  if (!picture) return picture.error();
  if (pith_tools::write_file(options.trace, pith_trace::chrome_json(*picture))) return {};
  return {Code::system, fmt::format("--trace is {}, which cannot be written", options.trace)};
}

Error check_traced(const Options& options, const Cluster& cluster, pith::Collective collective) {
  if (options.traced.empty()) return {};
  if (options.trace.empty()) return wrong("--trace", "", "a file with --traced");
  if (Error error = check_names("--traced", {options.traced}, collective)) return error;
  const int most = pith::find_algorithm(collective, options.traced)->ranks_max;
  if (cluster.ranks() <= most) return {};
  return wrong("--traced", options.traced,
               fmt::format("one that serves {} ranks; it serves {}", cluster.ranks(), most));
}

void print(const Options& options, const Question& question, const std::vector<Outcome>& outcomes) {
  if (options.json) {
    fmt::print("{}", json(question, outcomes));
  } else if (outcomes.size() == 1) {
    fmt::print("{}", text(question, outcomes.front()));
  } else {
    fmt::print("{}\n{}", pith_explain::heading(question), table(outcomes));
  }
}

Error write_picture(const Options& options, const std::string& picture) {
  if (pith_tools::write_file(options.svg, picture)) return {};
  return {Code::system, fmt::format("--svg is {}, which cannot be written", options.svg)};
}

Error run_steps(const Options& options, const Cluster& cluster, const Sizes& sizes) {
  const StepQuestion question{options.compress, options.densities, options.compute_s};
  if (options.collective != "allreduce") {
    return wrong("--collective", options.collective, "allreduce with --compress");
  }
  if (Error error = check(question)) return error;
  std::vector<StepOutcome> outcomes;
  for (const std::size_t bytes : pith_explain::doubled(sizes)) {
    const auto outcome = simulate_steps(cluster, question, bytes);
    if (!outcome) return outcome.error();
    outcomes.push_back(*outcome);
  }
  fmt::print("{}",
             options.json ? json(cluster, question, outcomes) : text(cluster, question, outcomes));
  if (options.svg.empty()) return {};
  return write_picture(options, svg(cluster, question, outcomes));
}

// A picture needs several points on its axis.
Error check_picture(const Options& options, const Sizes& sizes) {
  if (options.svg.empty() || sizes.low != sizes.high || options.densities.size() > 1) return {};
  return wrong("--bytes", options.bytes, "two sizes as 64:4M, or several --densities, with --svg");
}

Error run(const Options& options) {
  const Expected<Cluster> cluster = cluster_of(options);
  if (!cluster) return cluster.error();
  const auto collective = pith_explain::parse_collective("--collective", options.collective);
  if (!collective) return collective.error();
  const Expected<Sizes> sizes = sizes_of(options);
  if (!sizes) return sizes.error();
  if (Error error = check_picture(options, *sizes)) return error;
  if (!options.compress.empty()) return run_steps(options, *cluster, *sizes);
  if (Error error = check_names("--only", options.only, *collective)) return error;
  if (Error error = check_traced(options, *cluster, *collective)) return error;
  if (!options.trace.empty() && sizes->low != sizes->high) {
    return wrong("--bytes", options.bytes, "one size with --trace");
  }
  std::vector<Outcome> outcomes;
  for (const std::size_t bytes : pith_explain::doubled(*sizes)) {
    const auto outcome =
        simulate(*cluster, question_of(*cluster, *collective, bytes), options.only);
    if (!outcome) return outcome.error();
    outcomes.push_back(*outcome);
  }
  const Question question = question_of(*cluster, *collective, sizes->low);
  print(options, question, outcomes);
  if (!options.svg.empty()) {
    if (Error error = write_picture(options, svg(question, outcomes))) return error;
  }
  if (options.trace.empty()) return {};
  const std::string& taken = outcomes.front().takes().name;
  return write_trace(options, *cluster, question, options.traced.empty() ? taken : options.traced);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "What a call takes on a described cluster: every algorithm runs in virtual time, beside "
      "what\n"
      "the library would take and what its cost function says.");
  Options options;
  add_options(app, options);
  app.set_version_flag("--version", pith_tools::version_of("pith-sim"));
  CLI11_PARSE(app, argc, argv);
  const Error error = run(options);
  if (error) fmt::print(stderr, "pith-sim: {}\n", error.message());
  return error ? 1 : 0;
}
