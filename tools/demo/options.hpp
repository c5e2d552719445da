// What the flags of pith-demo set, and the fixed settings of the training.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pith::demo {

inline constexpr int ranks_max = 16;

// After `steps` steps the parameters of the ranks and of single-process training may be `error_max`
// apart: see verdict.hpp.
struct Checkpoint {
  std::size_t steps;
  double error_max;
};
inline constexpr std::array<Checkpoint, 2> checkpoints = {{{5, 1e-5}, {20, 2e-3}}};
// A run must come to the first of them. A shorter one than to the last is asked for no accuracy.
inline constexpr std::size_t steps_min = checkpoints.front().steps;

struct Options {
  int ranks = 4;
  std::size_t epochs = 20;
  std::size_t batch = 32;  // per rank
  float rate = 0.1F;       // falls linearly to zero over the run
  float momentum = 0.9F;
  std::uint64_t seed = 1998;
  double timeout_s = 170.0;  // of the whole demo, which promises less than three minutes
  std::string data;

  // Of the comparison of schemes.
  bool comparison = true;
  std::size_t scheme_steps = 110;
  double link_mbit = 100.0;
  std::string picture = "pith-demo.png";

  // Set by the launcher in the rank processes alone.
  std::string scheme;  // one of those compared; empty: the first training
  int rank = -1;
  int control_fd = -1;
  int board_fd = -1;
};

}  // namespace pith::demo
