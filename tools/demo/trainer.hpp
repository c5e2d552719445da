// The training itself, by several ranks and by one process on the same batches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tools/demo/board.hpp"
#include "tools/demo/dataset.hpp"
#include "tools/demo/model.hpp"
#include "tools/demo/options.hpp"
#include "tools/demo/progress.hpp"
#include "tools/demo/session.hpp"

namespace pith::demo {

// Which samples make up which batch. An epoch drops the samples that fill no global batch.
class Schedule {
 public:
  Schedule(const Options& options, std::size_t train_size);

  std::size_t steps_per_epoch() const { return steps_per_epoch_; }
  std::size_t steps() const { return steps_per_epoch_ * epochs_; }
  float rate(std::size_t step) const;

  // The global batch of `step`, every rank's share one after the other.
  std::span<const std::size_t> global_batch(std::size_t step);
  std::span<const std::size_t> share(std::size_t step, int rank);

 private:
  std::size_t train_size_;
  std::size_t batch_;
  std::size_t global_;
  std::size_t epochs_;
  std::size_t steps_per_epoch_;
  std::uint64_t seed_;
  float first_rate_;
  std::size_t shuffled_epoch_ = SIZE_MAX;
  std::vector<std::size_t> order_;
};

// One rank's part. Rank 0 shows the progress and leaves its parameters on the board.
void train_rank(const Options& options, const Dataset& data, Session& session, const Board& board,
                Progress& progress);

struct SingleProcess {
  std::vector<float> first_parameters;  // before the first step
  std::array<std::vector<float>, kCheckpoints.size()> snapshots;
  std::vector<float> final_parameters;
  double accuracy = 0.0;
  double seconds = 0.0;
};

// The same steps without Pith: each one on the whole global batch at once. `after_step` is told
// the number of steps done.
SingleProcess train_single(const Options& options, const Dataset& data,
                           const std::function<void(std::size_t)>& after_step);

}  // namespace pith::demo
