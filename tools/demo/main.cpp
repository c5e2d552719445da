// pith-demo: rank processes train a small network on handwritten digits, averaging its gradients
// with Pith, and the result is compared with training in a single process.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "tools/demo/board.hpp"
#include "tools/demo/comparison.hpp"
#include "tools/demo/data_file.hpp"
#include "tools/demo/dataset.hpp"
#include "tools/demo/deadline.hpp"
#include "tools/demo/launcher.hpp"
#include "tools/demo/options.hpp"
#include "tools/demo/progress.hpp"
#include "tools/demo/progress_line.hpp"
#include "tools/demo/session.hpp"
#include "tools/demo/trainer.hpp"
#include "tools/demo/verdict.hpp"
#include "tools/version.hpp"

namespace pith::demo {
namespace {

constexpr std::size_t batch_max = 256;

void add_flags(CLI::App& app, Options& options) {
  app.add_option("--ranks", options.ranks, "rank processes")
      ->check(CLI::Range(1, ranks_max))
      ->capture_default_str();
  app.add_option("--epochs", options.epochs, "passes over the training set")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "samples per rank and step")
      ->check(CLI::Range(std::size_t{1}, batch_max))
      ->capture_default_str();
  app.add_option("--rate", options.rate, "learning rate at the start; it falls to zero")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "of the split, the start and the order of the samples")
      ->capture_default_str();
  app.add_option("--timeout", options.timeout_s, "seconds after which the demo ends, done or not")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--data", options.data,
                 "the digits, one a line: 64 pixels and the label; by default Pith's own");
  app.add_flag("!--no-comparison", options.comparison, "leave out the schemes over a slow link");
  app.add_option("--schemes", options.schemes,
                 "specs to compare there, as int8 or topk:density=0.1, or dense or auto")
      ->type_name("SPEC");
  app.add_option("--scheme-steps", options.scheme_steps, "of each scheme that is compared")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--link", options.links_mbit,
                 "Mbit/s between the hosts of that comparison; several take turns, epoch by epoch")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--picture", options.picture, "its PNG file")->capture_default_str();
  app.add_option("--scheme", options.scheme)->group("");
  app.add_option("--rank", options.rank)->group("");
  app.add_option("--control-fd", options.control_fd)->group("");
  app.add_option("--board-fd", options.board_fd)->group("");
}

Dataset load(const Options& options) {
  Dataset data = split_digits(read_digits(options.data), options.seed);
  const std::size_t steps = Schedule(options, data.train.size()).steps();
  if (steps < steps_min) {
    throw std::runtime_error(
        fmt::format("{} ranks, batches of {} and {} epochs make {} steps; the check needs {}",
                    options.ranks, options.batch, options.epochs, steps, steps_min));
  }
  return data;
}

void run_rank(const Options& options) {
  const std::size_t parameters = demo_model().parameter_count();
  const Dataset data = load(options);
  const Board board = Board::attach(options.board_fd, options.ranks, parameters);
  if (!options.scheme.empty()) return run_scheme_rank(options, data, board);
  Session session(agree_on_id(options), options.ranks, options.rank);
  Progress progress(options, Schedule(options, data.train.size()).steps_per_epoch(),
                    options.rank == 0);
  progress.heading(parameters, data.train.size(), data.test.size());
  train_rank(options, data, session, board, progress);
  session.close();
}

SingleProcess train_alone(const Options& options, const Dataset& data, const Deadline& deadline) {
  const std::size_t steps = Schedule(options, data.train.size()).steps();
  ProgressLine line(true);
  return train_single(options, data, [&](std::size_t done) {
    if (deadline.is_over()) {
      throw TimeOver(
          fmt::format("the single process had made {} of {} steps when the demo's {:g} s were over",
                      done, steps, deadline.seconds()));
    }
    line.draw("single process", done, steps);
  });
}

// True if the demo succeeded.
bool run_launcher(const Options& options) {
  const Deadline deadline(options.timeout_s);
  signal(SIGCHLD, SIG_DFL);  // with SIGCHLD ignored no rank's exit status could be read
  const Dataset data = load(options);
  check_schemes(options);
  const Board board = Board::create(options.ranks, demo_model().parameter_count());
  RankProcesses(options, board).run(deadline);
  print_table(board.reports());

  const SingleProcess single = train_alone(options, data, deadline);
  const Verdict verdict = judge(board, single);
  print_verdict(verdict, single);
  const bool compared = !options.comparison || compare_schemes(options, data, deadline);
  const Totals totals = add_up(board.reports());
  fmt::print(
      "demo: accuracy {:.1f} %, equal to single-process training: {}, {:.0f} MB moved, {:.0f} % in "
      "communication\n",
      100.0 * verdict.accuracy, verdict.equal() ? "yes" : "no", totals.bytes / 1e6,
      100.0 * totals.communication_share);
  return verdict.passed() && compared;
}

int run(const Options& options) {
  try {
    if (options.rank < 0) return run_launcher(options) ? 0 : 1;
    run_rank(options);
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    if (options.rank < 0) {
      fmt::print(stderr, "\ndemo: failed: {}\n", error.what());
    } else {
      fmt::print(stderr, "\npith-demo: rank {}: {}\n", options.rank, error.what());
    }
    return 1;
  }
}

}  // namespace
}  // namespace pith::demo

int main(int argc, char** argv) {
  CLI::App app("Trains a small network with Pith and compares it with single-process training.",
               "pith-demo");
  pith::demo::Options options;
  pith::demo::add_flags(app, options);
  app.set_version_flag("--version", pith_tools::version_of("pith-demo"));
  CLI11_PARSE(app, argc, argv);
  if (options.data.empty()) options.data = pith::demo::data_file();
  return pith::demo::run(options);
}
