#include "tools/demo/progress.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <thread>

namespace pith::demo {
namespace {

constexpr double mega = 1e6;

}  // namespace

Progress::Progress(const Options& options, std::size_t steps_per_epoch, bool shown)
    : epochs_(options.epochs),
      batch_(options.batch),
      ranks_(options.ranks),
      steps_per_epoch_(steps_per_epoch),
      shown_(shown),
      line_(shown) {}

void Progress::heading(std::size_t parameters, std::size_t train_size, std::size_t test_size) {
  if (!shown_) return;
  fmt::print(
      "{} rank processes train a perceptron of {} parameters on {} digits, {} per rank and step.\n"
      "Pith averages the gradients bucket by bucket while the backward pass goes on.\n"
      "Accuracy is on {} digits not trained on; moved: payload of all ranks' collectives.\n\n",
      ranks_, parameters, train_size, batch_, test_size);
  std::fflush(stdout);
}

void Progress::step(std::size_t step) {
  line_.draw(fmt::format("epoch {:3}/{}", step / steps_per_epoch_ + 1, epochs_),
             step % steps_per_epoch_, steps_per_epoch_);
}

void Progress::epoch(std::size_t epoch, const EpochSummary& summary) {
  if (!shown_) return;
  line_.erase();
  fmt::print(
      "epoch {:3}/{}  loss {:7.4f}  accuracy {:5.1f} %  {:7.0f} MB moved  {:3.0f} % in "
      "communication\n",
      epoch + 1, epochs_, summary.loss, 100.0 * summary.accuracy, summary.bytes / mega,
      100.0 * summary.communication_share);
  std::fflush(stdout);
}

Totals add_up(std::span<const RankReport> reports) {
  Totals totals;
  double seconds = 0.0;
  double communication = 0.0;
  for (const RankReport& report : reports) {
    totals.bytes += static_cast<double>(report.bytes);
    seconds += report.total_s;
    communication += report.communication_s;
  }
  totals.communication_share = communication / seconds;
  return totals;
}

void print_table(std::span<const RankReport> reports) {
  fmt::print("\n{:>5}  {:>11}  {:>17}  {:>11}  {:>9}  {:>16}\n", "rank", "computing/s",
             "communicating/s", "collectives", "MB moved", "parameters' hash");
  double computing = 0.0;
  double communicating = 0.0;
  unsigned collectives = 0;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const RankReport& report = reports[rank];
    computing += report.total_s - report.communication_s;
    communicating += report.communication_s;
    collectives += report.collectives;
    fmt::print("{:>5}  {:>11.2f}  {:>17.2f}  {:>11}  {:>9.1f}  {:016x}\n", rank,
               report.total_s - report.communication_s, report.communication_s, report.collectives,
               static_cast<double>(report.bytes) / mega, report.hash);
  }
  fmt::print("{:>5}  {:>11.2f}  {:>17.2f}  {:>11}  {:>9.1f}\n\n", "total", computing, communicating,
             collectives, add_up(reports).bytes / mega);
  const unsigned cores = std::thread::hardware_concurrency();
  if (cores < reports.size()) {
    fmt::print(
        "{} ranks share {} cores: communicating includes waiting for one without a core.\n\n",
        reports.size(), cores);
  }
  std::fflush(stdout);
}

}  // namespace pith::demo
