// The training, by several ranks and by one process on the same batches.
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
#include "tools/demo/schedule.hpp"
#include "tools/demo/session.hpp"

namespace pith::demo {

// One rank's part. Rank 0 shows the progress and copies its parameters to the board.
void train_rank(const Options& options, const Dataset& data, Session& session, const Board& board,
                Progress& progress);

struct SingleProcess {
  std::vector<float> first_parameters;  // before the first step
  std::array<std::vector<float>, checkpoints.size()> snapshots;
  std::vector<float> final_parameters;
  double accuracy = 0.0;
  double seconds = 0.0;
};

// The same steps without Pith, each on the whole global batch. `after_step` gets the number of
// steps done.
SingleProcess train_single(const Options& options, const Dataset& data,
                           const std::function<void(std::size_t)>& after_step);

}  // namespace pith::demo
