#include "compress/thresholds/stage_control.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pith {

// Of heavy tails (Pareto's law of shape 0.3, a target of 1 %) one stage elects 2.65 times the
// target, two 1.18 times, three 0.65; of even magnitudes two elect none, three 1.17 times it,
// four 3.06.
void StageControl::saw(double elected, double target, std::uint32_t most) {
  ratios += elected / target;
  if (++calls < calls_together) return;
  const double mean = std::exchange(ratios, 0) / std::exchange(calls, 0);
  const double off = std::fabs(std::log(std::max(mean, 1e-9)));
  const bool has_hit = mean <= 1 + tolerance && mean >= 1 - tolerance;
  const bool is_worse = is_known != 0 && off > last_off;
  is_known = 1;
  last_off = off;
  if (has_hit) return;
  if (is_worse) direction = -direction;
  const auto moved = [&] {
    return std::clamp<std::int64_t>(std::int64_t{stages} + direction, 1, most);
  };
  if (moved() == std::int64_t{stages}) direction = -direction;
  stages = static_cast<std::uint32_t>(moved());
}

}  // namespace pith
