// Is what the ranks learnt together what one process learns alone?
#pragma once

#include <span>

#include "tools/demo/board.hpp"
#include "tools/demo/trainer.hpp"

namespace pith::demo {

// Both sides add the same float32 numbers, but in another order: a rank means over its 32 samples
// and Pith over the ranks, a single process over all 128. Rounding a sum moves it by some 1e-7 of
// its size (the unit roundoff is 6e-8), and twenty steps pass that on with little growth: 3e-7 to
// 5e-7 is what 1 to 8 ranks show. One bucket of one step lost, doubled or a step late shows as 2e-2
// and more, one element of it off by 0.01 as 6e-4.
inline constexpr double kCheckedErrorMax = 1e-5;

// A unit that opens on one side and not on the other makes such differences jump, so at the end the
// bound is wider (up to 4e-5 is what is seen), and the accuracy must agree: one test image in 360
// is 0.28 points.
inline constexpr double kFinalErrorMax = 1e-3;
inline constexpr double kAccuracyGapMax = 0.005;

inline constexpr double kAccuracyMin = 0.97;

struct Verdict {
  double checked_error;  // relative_error() of the parameters after kCheckStep steps
  double final_error;    // the same at the end
  double accuracy;       // of the ranks
  double single_accuracy;
  bool identical;  // all ranks ended with the same bits

  bool equal() const;
  bool passed() const { return equal() && accuracy > kAccuracyMin; }
};

// |a - b| / |b - start| in the Euclidean norm; infinite where a number is not finite.
double relative_error(std::span<const float> a, std::span<const float> b,
                      std::span<const float> start);

Verdict judge(const Board& board, const SingleProcess& single);

void print_verdict(const Verdict& verdict, const SingleProcess& single);

}  // namespace pith::demo
