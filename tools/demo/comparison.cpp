#include "tools/demo/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/demo/chart.hpp"
#include "tools/demo/hosts.hpp"
#include "tools/demo/launcher.hpp"
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
  const char* name;
  const char* spec;
  double bytes_per_element;  // minimum
};

constexpr std::array<Scheme, 7> known_schemes = {{
    {"dense float32", "dense", 4.0},
    {"top-k", "topk:density=0.01,bypass=never", 0.0},
    {"AR-Topk STAR", "ar-topk:density=0.01,election=staleness,bypass=never", 0.0},
    {"AR-Topk VAR", "ar-topk:density=0.01,election=variance,bypass=never", 0.0},
    {"ExDyna", "exdyna:density=0.01,bypass=never", 0.0},
    {"top-k, auto", "topk:density=auto", 0.0},
    {"dense bfloat16", "bf16:bypass=never", 2.0},
}};

// The time its bytes take on the links; no all-reduce sends less than 2 (N - 1) / N of its vector.
double link_time_s(const Scheme& scheme, const Options& options) {
  const auto parameters = static_cast<double>(demo_model().parameter_count());
  const double bytes = 2.0 * (options.ranks - 1) / options.ranks * parameters *
                       scheme.bytes_per_element * static_cast<double>(options.scheme_steps);
  return 8.0 * bytes / (options.link_mbit * 1e6);
}

// Why the library lacks this compressor; empty if it has it.
std::string refused(const Scheme& scheme) {
  if (std::string_view(scheme.spec) == "dense") return {};
  pithCompressor_t made = nullptr;
  if (pithCompressorCreate(&made, scheme.spec) != pithSuccess) return pithGetLastError(nullptr);
  pithCompressorDestroy(made);
  return {};
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::span<const CurvePoint> curve_of(const RankReport& report) {
  return {report.curve.data(), report.points};
}

void print_heading(const Options& options) {
  fmt::print(
      "The same training with other schemes of averaging, layer by layer: plain SGD at rate 0.2,\n"
      "{} steps, ranks on {} hosts (network namespaces) joined by links of {:g} Mbit/s.\n"
      "Sent: by all ranks, as their network devices count. Density: share of the elements that\n"
      "moved in a step. The clock stands still while the accuracy is measured.\n\n"
      "{:<15} {:>12} {:>10} {:>10} {:>9} {:>9}\n",
      options.scheme_steps, options.ranks, options.link_mbit, "", "s to 97 %", "s in all",
      "accuracy", "MB sent", "density");
  std::fflush(stdout);
}

void print_scheme(const Scheme& scheme, std::span<const RankReport> reports) {
  const RankReport& report = reports[0];
  std::string reached = "not reached";
  for (const CurvePoint& point : curve_of(report)) {
    if (point.accuracy < target_accuracy) continue;
    reached = fmt::format("{:.1f}", point.seconds);
    break;
  }
  double bytes = 0.0;
  for (const RankReport& rank : reports) bytes += static_cast<double>(rank.bytes);
  fmt::print("{:<15} {:>12} {:>10.1f} {:>8.1f} % {:>9.1f} {:>7.2f} %\n", scheme.name, reached,
             report.total_s, 100.0 * report.accuracy, bytes / 1e6, 100.0 * report.density);
  std::fflush(stdout);
}

const char* name_of(std::string_view spec) {
  const auto* const found = std::find_if(known_schemes.begin(), known_schemes.end(),
                                         [&](const Scheme& scheme) { return scheme.spec == spec; });
  return found == known_schemes.end() ? "" : found->name;
}

struct Stuck : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Runs one scheme on existing hosts; returns rank 0's curve. Throws what RankProcesses throws;
// Stuck if the ranks had ceased to make steps when the time was over.
ChartLine run_scheme(const Scheme& scheme, Options options, const Hosts& hosts,
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
  const std::span<const CurvePoint> curve = curve_of(board.reports()[0]);
  return {scheme.name, {curve.begin(), curve.end()}};
}

}  // namespace

bool compare_schemes(const Options& options, const Deadline& deadline) {
  const std::string reason =
      options.ranks < 2 ? "it takes at least two ranks" : Hosts::unavailable();
  if (!reason.empty()) {
    fmt::print("No comparison of schemes over a slow link: {}.\n\n", reason);
    return true;
  }
  const Hosts hosts(options.ranks, options.link_mbit * 1e6);
  // Shared memory would connect the simulated hosts.
  setenv("PITH_TRANSPORT", "tcp", 1);
  setenv("PITH_IFNAME", "eth0", 1);
  print_heading(options);
  std::vector<ChartLine> lines;
  ProgressLine half_drawn(true);  // left by ranks that were killed
  bool good = true;
  std::size_t later = known_schemes.size();
  for (const Scheme& scheme : known_schemes) {
    const Deadline own(deadline.left_s() - reserve_s * static_cast<double>(--later));
    const bool late = own.left_s() < link_time_s(scheme, options) + spare_min_s;
    const std::string why = late ? "too little of the demo's time is left" : refused(scheme);
    if (!why.empty()) {
      fmt::print("{:<15} skipped: {}\n", scheme.name, why);
      continue;
    }
    try {
      lines.push_back(run_scheme(scheme, options, hosts, own));
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
  if (lines.empty()) return good;
  const std::string title =
      fmt::format("Digits, {} ranks, links of {:g} Mbit/s, density 1 % or auto", options.ranks,
                  options.link_mbit);
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
  Session session(agree_on_id(options), options.ranks, options.rank);
  const double sent_before = sent_bytes();
  RankReport& report = board.reports()[static_cast<std::size_t>(options.rank)];
  // Progress in place of the table's row, which takes up to half a minute.
  ProgressLine line(options.rank == 0);
  const std::string label = fmt::format("{:<15}", name_of(plan.spec));
  const auto note = [&](std::size_t done) {
    std::atomic_ref(report.stepped_at_s).store(now_s());
    line.draw(label, done, plan.steps);
  };
  const SchemeRun run = train_with_scheme(plan, data, demo_model(), session.comm(), options.ranks,
                                          options.rank, note);
  report.bytes = static_cast<std::uint64_t>(sent_bytes() - sent_before);
  report.total_s = run.seconds;
  report.accuracy = run.accuracy;
  report.density = run.density;
  report.points = static_cast<std::uint32_t>(std::min(run.curve.size(), curve_points));
  std::copy_n(run.curve.begin(), report.points, report.curve.begin());
  session.close();
}

}  // namespace pith::demo
