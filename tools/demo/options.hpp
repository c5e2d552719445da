// What the flags of pith-demo set, and the fixed settings of the training.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pith::demo {

inline constexpr int kRanksMax = 16;

// Rounding differences between two ways of adding gradients grow from step to step, so the strict
// comparison with single-process training is made early.
inline constexpr std::size_t kCheckStep = 20;

struct Options {
  int ranks = 4;
  std::size_t epochs = 20;
  std::size_t batch = 32;  // per rank
  float rate = 0.1F;       // falls linearly to zero over the run
  float momentum = 0.9F;
  std::uint64_t seed = 1998;
  double timeout_s = 170.0;
  std::string data;

  // Set by the launcher in the rank processes alone.
  int rank = -1;
  int control_fd = -1;
  int board_fd = -1;
};

}  // namespace pith::demo
