// Who leads an AR-Topk step: scores, and what elections remember from step to step. Pure arithmetic
// on what all ranks have agreed, so that all of them name the same leader without a message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/sparse_kernel_args.hpp"

namespace pith {

// As sent: finite and not negative, so that every rank orders scores alike. What is neither of the
// two counts as zero, what is too large as the largest. In float64, for squares of float32 leave
// float32's range: all scores of gradients below 1e-23 or above 1e19 would be equal.
double score_of(double measure);
// The first rank of the largest score. Precondition: there is one.
int first_largest(std::span<const double> scores);

// The squared norm of the k largest magnitudes that were counted. Of the last bin, whose elements
// differ by less than a sixteenth, subnormal ones by more, a share at their mean.
double largest_squares(const MagnitudeHistogram& histogram, std::size_t k);

// The norm of a gradient, smoothed as the authors' code does for `variance`: a mean over the last
// 25 steps, weighted by (1 - 0.001)^age. Theirs gives zero until the window is full; here it is the
// mean of what is there.
class SmoothedNorm {
 public:
  static constexpr std::size_t window = 25;

  // Norms that are not finite are left out.
  void saw(double norm);
  double value() const;
  // The gradients were multiplied by this factor.
  void scale(double factor);

  struct State {
    std::array<double, window> norms{};  // a ring
    std::uint32_t count = 0;             // of them that are there
    std::uint32_t next = 0;              // where the next one goes
  };
  State state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  static constexpr double smoothing = 0.001;

  State state_;
};

// Who leads next by the scores of the step before. No rank starves: who has not led for 4 N steps
// goes first, the longest wait before the others, so that every rank leads within 5 N steps.
class Succession {
 public:
  static constexpr std::uint64_t most_turns = 4;  // of N steps each

  // Rank 0 at first, and where it was for another number of ranks.
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
