// Compares what the ranks have learnt together with what one process learns alone.
#pragma once

#include <array>
#include <span>

#include "tools/demo/board.hpp"
#include "tools/demo/trainer.hpp"

namespace pith::demo {

// Both sides add the same float32 numbers in a different order: a rank averages over its 32 samples
// and Pith over the ranks, a single process over all 128. Rounding changes a sum by some 1e-7 of
// its size (the unit roundoff is 6e-8), which the first steps do not amplify. But if a unit's input
// is that close to zero, its ReLU is active on one side only, and the distance jumps. Over 59 seeds
// and two orders of addition, parameters differed by at most 5e-7 after 5 steps; after 20 the
// median was 4e-7, the worst 6e-4. Losing, doubling or delaying one bucket of one step shows as
// 2e-2 and more ten steps later, losing one rank's part of it as 5e-3. Hence the bounds of the
// checkpoints: a strict one early, a wider one later. At the end (up to 7e-3 apart) the accuracies
// must agree: one test image in 360 is 0.28 points.
inline constexpr double accuracy_gap_max = 0.005;

inline constexpr double accuracy_min = 0.97;

struct Verdict {
  std::array<double, checkpoints.size()> errors;  // relative_error() of the parameters
  std::size_t reached = checkpoints.size();       // number of checkpoints that the run reached
  double final_error;
  double accuracy;  // of the ranks
  double single_accuracy;
  bool identical;  // bit for bit, on all ranks

  bool equal() const;
  bool is_short() const { return reached < checkpoints.size(); }
  bool passed() const { return equal() && (is_short() || accuracy > accuracy_min); }
};

// |a - b| / |b - start| in the Euclidean norm; infinite if a number is not finite.
double relative_error(std::span<const float> a, std::span<const float> b,
                      std::span<const float> start);

Verdict judge(const Board& board, const SingleProcess& single);

void print_verdict(const Verdict& verdict, const SingleProcess& single);

}  // namespace pith::demo
