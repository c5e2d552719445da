// How many stages SIDCo's fit has, adapted to how many elements were elected.
#pragma once

#include <cstdint>

namespace pith {

// The number of stages changes by one where the elections of a few calls together were off their
// target, and the direction turns where the last change made that worse, or where a limit is
// reached. [The authors' text has one direction: fewer stages where too many elements are elected;
// with heavy tails it ends at one stage, which is the cause. Their program can turn, too.]
struct StageControl {
  static constexpr std::uint32_t calls_together = 5;
  static constexpr double tolerance = 0.2;

  // A call has elected so many of its target; `most` >= 1: most stages.
  void saw(double elected, double target, std::uint32_t most);

  std::uint32_t stages = 1;
  std::int32_t direction = 1;  // of the next change
  std::uint32_t calls = 0;     // since the last decision
  std::uint32_t is_known = 0;  // whether `last_off` is
  double ratios = 0;           // sum over these calls of elected / target
  double last_off = 0;         // |log of the mean ratio| at the last decision

  bool operator==(const StageControl&) const = default;
};

}  // namespace pith
