// The demo's output during the training and at its end.
#pragma once

#include <cstddef>
#include <span>

#include "tools/demo/board.hpp"
#include "tools/demo/options.hpp"
#include "tools/demo/progress_line.hpp"

namespace pith::demo {

// Over all ranks.
struct EpochSummary {
  double loss;                 // mean over the epoch's training samples
  double accuracy;             // on the test set, 0 to 1
  double bytes;                // passed to collectives so far
  double communication_share;  // of the time so far, 0 to 1
};

// One line per epoch. On a terminal the line of the running epoch is redrawn.
class Progress {
 public:
  // Silent unless `shown`.
  Progress(const Options& options, std::size_t steps_per_epoch, bool shown);

  void heading(std::size_t parameters, std::size_t train_size, std::size_t test_size);
  void step(std::size_t step);  // the step about to begin; counted from 0 over the whole run
  void epoch(std::size_t epoch, const EpochSummary& summary);

 private:
  std::size_t epochs_;
  std::size_t batch_;
  int ranks_;
  std::size_t steps_per_epoch_;
  bool shown_;
  ProgressLine line_;
};

struct Totals {
  double bytes = 0.0;
  double communication_share = 0.0;
};
Totals add_up(std::span<const RankReport> reports);

// Per rank: computing time, communication time, bytes; then the sums.
void print_table(std::span<const RankReport> reports);

}  // namespace pith::demo
