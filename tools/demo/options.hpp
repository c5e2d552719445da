// The flags of pith-demo, and the fixed settings of the training.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pith::demo {

inline constexpr int ranks_max = 16;

// After `steps` steps the parameters of the ranks and of single-process training may differ by
// `error_max`: see verdict.hpp.
struct Checkpoint {
  std::size_t steps;
  double error_max;
};
inline constexpr std::array<Checkpoint, 2> checkpoints = {{{5, 1e-5}, {20, 2e-3}}};
// A run must reach the first checkpoint. If it does not reach the last one its accuracy is not
// checked.
inline constexpr std::size_t steps_min = checkpoints.front().steps;

struct Options {
  int ranks = 4;
  std::size_t epochs = 20;
  std::size_t batch = 32;  // per rank
  float rate = 0.1F;       // falls linearly to zero over the run
  float momentum = 0.9F;
  std::uint64_t seed = 1998;
  double timeout_s = 170.0;  // of the whole demo, which must take less than three minutes
  std::string data;

  // For the comparison of schemes.
  bool comparison = true;
  std::vector<std::string> schemes;  // specs, or "dense"; none: the usual ones
  std::size_t scheme_steps = 110;
  // Between the hosts, one after another, each for an epoch; then again. A tenth of the rates of
  // AR-Topk's authors (their schedule C1), as this network has a tenth of their least one's bytes.
  std::vector<double> links_mbit = {2500.0, 100.0};
  std::string picture = "pith-demo.png";

  // Set by the launcher, in rank processes only.
  std::string scheme;  // the scheme to compare; empty: the first training
  int rank = -1;
  int control_fd = -1;
  int board_fd = -1;
};

}  // namespace pith::demo
