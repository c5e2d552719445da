#include "tools/demo/comparison.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "compress/gossip/choco_scheme.hpp"
#include "tools/demo/chart.hpp"
#include "tools/demo/hosts.hpp"
#include "tools/demo/launcher.hpp"
#include "tools/demo/link_plan.hpp"
#include "tools/demo/progress_line.hpp"
#include "tools/demo/scheme_training.hpp"
#include "tools/demo/session.hpp"

namespace pith::demo {
namespace {

constexpr double target_accuracy = 0.97;
// On a busy machine no scheme starts with less than this beyond the time its bytes take.
constexpr double spare_min_s = 10.0;
// Reserved for each later scheme: the above, and the time to stop.
constexpr double reserve_s = 12.0;
// A scheme without a step for this long at the end of the time is stuck, however busy the machine.
constexpr double silence_max_s = 20.0;

struct Scheme {
  std::string_view name;
  std::string_view spec;
  double bytes_per_element;  // minimum
};

constexpr const char* auto_spec = "auto";

constexpr std::array<Scheme, 9> known_schemes = {{
    {"auto", auto_spec, 0.0},
    {"dense float32", "dense", 4.0},
    {"top-k", "topk:density=0.01,bypass=never", 0.0},
    {"top-k 0.1 %", "topk:density=0.001,bypass=never", 0.0},
    {"AR-Topk STAR", "ar-topk:density=0.01,election=staleness,bypass=never", 0.0},
    {"AR-Topk VAR", "ar-topk:density=0.01,election=variance,bypass=never", 0.0},
    {"ExDyna", "exdyna:density=0.01,bypass=never", 0.0},
    {"QSGD, 4 bits", "qsgd", 0.5},
    {"dense bfloat16", "bf16:bypass=never", 2.0},
}};

// Those that the user has named go by their specs, unless they are among the usual ones.
std::vector<Scheme> schemes_of(const Options& options) {
  if (options.schemes.empty()) return {known_schemes.begin(), known_schemes.end()};
  std::vector<Scheme> schemes;
  for (const std::string& spec : options.schemes) {
    const auto* const known =
        std::find_if(known_schemes.begin(), known_schemes.end(),
                     [&](const Scheme& scheme) { return scheme.spec == spec; });
    schemes.push_back(known != known_schemes.end() ? *known : Scheme{spec, spec, 0.0});
  }
  return schemes;
}

struct Outcome {
  const Scheme* scheme;
  ChartLine line;
};

// The time its bytes take on the links; no all-reduce sends less than 2 (N - 1) / N of its vector.
double link_time_s(const Scheme& scheme, const Options& options, const LinkPlan& links) {
  const auto parameters = static_cast<double>(demo_model().parameter_count());
  return links.seconds(2.0 * (options.ranks - 1) / options.ranks * parameters *
                       scheme.bytes_per_element);
}

// Why the demo cannot train with it; empty if it can.
std::string refused(const Scheme& scheme) {
  if (scheme.spec == "dense") return {};
  pithCompressor_t made = nullptr;
  const std::string spec(scheme.spec);
  if (pithCompressorCreate(&made, spec.c_str()) != pithSuccess) return pithGetLastError(nullptr);
  pithCompressorDestroy(made);
  if (!states_graph(*Spec::parse(spec))) return {};
  return fmt::format(
      "\"{}\" needs edges by pithCompressorSetGraph, which the demo does not call, expected "
      "another graph",
      spec);
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::span<const CurvePoint> curve_of(const RankReport& report) {
  return {report.curve.data(), report.points};
}

// What the table's accuracy is where schemes average parameters.
const char* note_on_accuracy(std::span<const Scheme> schemes) {
  const bool any = std::ranges::any_of(
      schemes, [](const Scheme& scheme) { return averages_parameters(std::string(scheme.spec)); });
  return any ? "Where ranks average parameters, each has a model of its own, and the accuracy is "
               "the mean over\nthem.\n"
             : "";
}

void print_heading(const Options& options, std::span<const Scheme> schemes) {
  fmt::print(
      "The same training with other schemes of averaging, layer by layer: plain SGD at rate 0.2,\n"
      "{} steps, ranks on {} hosts (network namespaces). Their links change with each epoch: {:g} "
      "Mbit/s,\nthen the next. auto: the library chooses the density, or sends all elements in 32, "
      "16, 8 or 4\nbits. Sent: by all ranks, as their network devices count. Density: share of the "
      "elements that\nmoved in a step. Loss: at the end, over what was trained with. The clock "
      "stands still while the\naccuracy is measured.\n{}\n"
      "{:<15} {:>12} {:>10} {:>10} {:>8} {:>9} {:>9}\n",
      options.scheme_steps, options.ranks, fmt::join(options.links_mbit, " and "),
      note_on_accuracy(schemes), "", "s to 97 %", "s in all", "accuracy", "loss", "MB sent",
      "density");
  std::fflush(stdout);
}

// Infinite if the accuracy was not reached.
double reached_s(std::span<const CurvePoint> curve) {
  for (const CurvePoint& point : curve) {
    if (point.accuracy >= target_accuracy) return point.seconds;
  }
  return std::numeric_limits<double>::infinity();
}

void print_scheme(const Scheme& scheme, std::span<const RankReport> reports) {
  const RankReport& report = reports[0];
  const double reached = reached_s(curve_of(report));
  double bytes = 0.0;
  for (const RankReport& rank : reports) bytes += static_cast<double>(rank.bytes);
  fmt::print("{:<15} {:>12} {:>10.1f} {:>8.1f} % {:>8.4f} {:>9.1f} {:>7.2f} %\n", scheme.name,
             std::isfinite(reached) ? fmt::format("{:.1f}", reached) : "not reached",
             report.total_s, 100.0 * report.accuracy, report.loss, bytes / 1e6,
             100.0 * report.density);
  std::fflush(stdout);
}

std::string text_of(const SchemeChoice& choice) {
  if (choice.density >= 1.0) return choice.algorithm.data();
  return fmt::format("{:.2g} % {}", 100.0 * choice.density, choice.algorithm.data());
}

// What changed when, as many a line as fit.
void print_choices(std::span<const SchemeChoice> choices, const LinkPlan& links) {
  constexpr std::size_t columns_most = 100;
  std::string line = "auto chose";
  for (const SchemeChoice& choice : choices) {
    const std::string text = fmt::format(" step {} ({:g} Mbit/s): {};", choice.step,
                                         links.mbit(choice.step), text_of(choice));
    if (line.size() + text.size() > columns_most) {
      fmt::print("{}\n", line);
      line = std::string(4, ' ');
    }
    line += text;
  }
  line.back() = '.';
  fmt::print("{}\n\n", line);
}

// How auto's time compares with the least of those that do not adapt.
void print_verdict_of_auto(std::span<const Outcome> outcomes) {
  const Outcome* adapting = nullptr;
  const Outcome* best = nullptr;
  for (const Outcome& one : outcomes) {
    if (one.scheme->spec == auto_spec) {
      adapting = &one;
    } else if (best == nullptr || reached_s(one.line.points) < reached_s(best->line.points)) {
      best = &one;
    }
  }
  if (adapting == nullptr || best == nullptr) return;
  const double own = reached_s(adapting->line.points);
  const double fixed = reached_s(best->line.points);
  if (!std::isfinite(own) || !std::isfinite(fixed)) return;
  fmt::print(
      "auto reached 97 % after {:.1f} s; the best that does not adapt, {}, after {:.1f} s: "
      "{:.2f} times\nas long.\n",
      own, best->scheme->name, fixed, fixed / own);
}

struct Stuck : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs one scheme on existing hosts. Throws what RankProcesses throws; Stuck if the ranks had
// ceased to make steps when the time was over.
Outcome run_scheme(const Scheme& scheme, Options options, Hosts& hosts, const LinkPlan& links,
                   const Deadline& deadline) {
  options.scheme = scheme.spec;
  const Board board = Board::create(options.ranks, demo_model().parameter_count());
  const double start_s = now_s();
  try {
    RankProcesses(options, board, &hosts).run(deadline);
  } catch (const TimeOver& over) {
    const double step_s = std::atomic_ref(board.reports()[0].stepped_at_s).load();
    const double silence_s = now_s() - std::max(step_s, start_s);
    if (silence_s < silence_max_s) throw;
    throw Stuck(fmt::format("{}; no step in the last {:.0f} s", over.what(), silence_s));
  }
  print_scheme(scheme, board.reports());
  const RankReport& report = board.reports()[0];
  const std::span<const CurvePoint> curve = curve_of(report);
  Outcome outcome{&scheme, {std::string(scheme.name), {curve.begin(), curve.end()}}};
  if (scheme.spec != auto_spec) return outcome;
  const std::span<const SchemeChoice> choices(report.choices.data(), report.choice_count);
  print_choices(choices, links);
  for (const SchemeChoice& choice : choices) {
    outcome.line.marks.push_back({choice.seconds, text_of(choice)});
  }
  return outcome;
}

}  // namespace

void check_schemes(const Options& options) {
  if (options.schemes.empty()) return;
  for (const Scheme& scheme : schemes_of(options)) {
    const std::string why = refused(scheme);
    if (!why.empty()) throw std::runtime_error(fmt::format("--schemes: {}", why));
  }
}

bool compare_schemes(const Options& options, const Dataset& data, const Deadline& deadline) {
  const std::string reason =
      options.ranks < 2 ? "it takes at least two ranks" : Hosts::unavailable();
  if (!reason.empty()) {
    fmt::print("No comparison of schemes over a slow link: {}.\n\n", reason);
    return true;
  }
  const LinkPlan links(options, data.train.size());
  Hosts hosts(options.ranks, links.mbit(0) * 1e6);
  // Shared memory would connect the simulated hosts.
  setenv("PITH_TRANSPORT", "tcp", 1);
  setenv("PITH_IFNAME", "eth0", 1);
  const std::vector<Scheme> schemes = schemes_of(options);
  print_heading(options, schemes);
  std::vector<Outcome> outcomes;
  ProgressLine half_drawn(true);  // left by ranks that were killed
  bool good = true;
  std::size_t later = schemes.size();
  for (const Scheme& scheme : schemes) {
    const Deadline own(deadline.left_s() - reserve_s * static_cast<double>(--later));
    const bool late = own.left_s() < link_time_s(scheme, options, links) + spare_min_s;
    const std::string why = late ? "too little of the demo's time is left" : refused(scheme);
    if (!why.empty()) {
      fmt::print("{:<15} skipped: {}\n", scheme.name, why);
      continue;
    }
    try {
      outcomes.push_back(run_scheme(scheme, options, hosts, links, own));
    } catch (const TimeOver& over) {
      half_drawn.erase();
      fmt::print("{:<15} stopped: {}\n", scheme.name, over.what());
    } catch (const std::exception& error) {
      half_drawn.erase();
      fmt::print("{:<15} failed: {}\n", scheme.name, error.what());
      good = false;
    }
  }
  fmt::print("\n");
  if (outcomes.empty()) return good;
  print_verdict_of_auto(outcomes);
  std::vector<ChartLine> lines;
  lines.reserve(outcomes.size());
  for (const Outcome& one : outcomes) lines.push_back(one.line);
  const std::string title = fmt::format("Digits, {} ranks, links of {:g} Mbit/s in turns",
                                        options.ranks, fmt::join(options.links_mbit, " and "));
  draw_chart(options.picture, title, lines);
  fmt::print("Accuracy over time: {}\n\n", options.picture);
  return good;
}

void run_scheme_rank(const Options& options, const Dataset& data, const Board& board) {
  SchemePlan plan;
  plan.spec = options.scheme;
  plan.steps = options.scheme_steps;
  plan.batch = options.batch;
  plan.seed = options.seed;
  plan.evaluate_every = (plan.steps + curve_points - 2) / (curve_points - 1);
  plan.evaluate_every = std::max<std::size_t>(plan.evaluate_every, 5);
  const LinkPlan links(options, data.train.size());
  Session session(agree_on_id(options), options.ranks, options.rank);
  const double sent_before = sent_bytes();
  RankReport& report = board.reports()[static_cast<std::size_t>(options.rank)];
  // Progress in place of the table's row, which takes up to half a minute.
  ProgressLine line(options.rank == 0);
  Options own = options;
  own.schemes = {options.scheme};
  const std::string label = fmt::format("{:<15}", schemes_of(own)[0].name);
  const auto note = [&](std::size_t done) {
    if (options.rank == 0 && links.begins(done)) ask_for_links(options, links.mbit(done) * 1e6);
    std::atomic_ref(report.stepped_at_s).store(now_s());
    line.draw(label, done, plan.steps);
  };
  const SchemeRun run = train_with_scheme(plan, data, demo_model(), session.comm(), options.ranks,
                                          options.rank, note);
  report.bytes = static_cast<std::uint64_t>(sent_bytes() - sent_before);
  report.total_s = run.seconds;
  report.accuracy = run.accuracy;
  report.loss = run.loss;
  report.density = run.density;
  report.points = static_cast<std::uint32_t>(std::min(run.curve.size(), curve_points));
  std::copy_n(run.curve.begin(), report.points, report.curve.begin());
  report.choice_count = static_cast<std::uint32_t>(std::min(run.choices.size(), choices_most));
  std::copy_n(run.choices.begin(), report.choice_count, report.choices.begin());
  session.close();
}

}  // namespace pith::demo
