// Is what the ranks learnt together what one process learns alone?
#pragma once

#include <array>
#include <span>

#include "tools/demo/board.hpp"
#include "tools/demo/trainer.hpp"

namespace pith::demo {

// Both sides add the same float32 numbers, but in another order: a rank means over its 32 samples
// and Pith over the ranks, a single process over all 128. Rounding a sum moves it by some 1e-7 of
// its size (the unit roundoff is 6e-8), and the first steps pass that on without growth. But where
// a unit's input is that close to zero, ReLU opens it on one side and not on the other, and the
// distance jumps. Over 59 seeds and two orders of addition, parameters were never more than 5e-7
// apart after 5 steps; after 20 the median was 4e-7, the worst 6e-4. One bucket of one step lost,
// doubled or a step late shows as 2e-2 and more ten steps on, one rank's part of it lost as 5e-3.
// Hence the bounds of checkpoints: a strict one early, a wider one later. At the end (up to 7e-3
// apart) it is the accuracy that must agree: one test image in 360 is 0.28 points.
inline constexpr double accuracy_gap_max = 0.005;

inline constexpr double accuracy_min = 0.97;

struct Verdict {
  std::array<double, checkpoints.size()> errors;  // relative_error() of the parameters
  std::size_t reached = checkpoints.size();       // so many of them, by a short run
  double final_error;
  double accuracy;  // of the ranks
  double single_accuracy;
  bool identical;  // all ranks ended with the same bits

  bool equal() const;
  bool is_short() const { return reached < checkpoints.size(); }
  bool passed() const { return equal() && (is_short() || accuracy > accuracy_min); }
};

// |a - b| / |b - start| in the Euclidean norm; infinite where a number is not finite.
double relative_error(std::span<const float> a, std::span<const float> b,
                      std::span<const float> start);

Verdict judge(const Board& board, const SingleProcess& single);

void print_verdict(const Verdict& verdict, const SingleProcess& single);

}  // namespace pith::demo
