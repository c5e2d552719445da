// The leader of an AR-Topk step: scores, and the state that elections keep between steps. Pure
// arithmetic on agreed numbers, so that all ranks choose the same leader without a message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/sparse_kernel_args.hpp"

namespace pith {

// A score as sent: finite and not negative, so that all ranks order scores alike. Other values
// become zero, or the largest number if too large. In float64, since squares exceed float32's
// range: all scores of gradients below 1e-23 or above 1e19 would be equal.
double score_of(double measure);
// The first rank with the largest score. Precondition: not empty.
int first_largest(std::span<const double> scores);

// Estimates the squared norm of the k largest magnitudes counted. Of the last bin, whose elements
// differ by less than a sixteenth (subnormals by more), the share needed counts at the bin's mean.
double largest_squares(const MagnitudeHistogram& histogram, std::size_t k);

// A gradient's norm, smoothed as in the authors' code for `variance`: a mean over the last 25
// steps, weighted by (1 - 0.001)^age. Until the window is full theirs is zero; here it is the mean
// so far.
class SmoothedNorm {
 public:
  static constexpr std::size_t window = 25;

  // Norms that are not finite are ignored.
  void saw(double norm);
  double value() const;
  // The gradients were multiplied by this factor.
  void scale(double factor);

  struct State {
    std::array<double, window> norms{};  // ring buffer
    std::uint32_t count = 0;             // number of valid norms
    std::uint32_t next = 0;              // index of the next one
  };
  State state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  static constexpr double smoothing = 0.001;

  State state_;
};

// The next leader by the scores of the step before. No rank starves: a rank that has not led for 4
// N steps takes precedence, longest wait first, so that every rank leads within 5 N steps.
class Succession {
 public:
  static constexpr std::uint64_t most_turns = 4;  // of N steps each

  // Rank 0 at first, and after the number of ranks has changed.
  int leader(int ranks) const {
    return state_.waited.size() == static_cast<std::size_t>(ranks) ? state_.next : 0;
  }
  // A step led by `leader` has ended, with these scores of all ranks.
  void saw(std::span<const double> scores, int leader);

  struct State {
    int next = 0;
    std::vector<std::uint64_t> waited;  // by rank: steps since it led
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  State state_;
};

}  // namespace pith
