// What a rank tells of some calls that follow each other among those of a collective and size.
#pragma once

#include <limits>

#include "collectives/algorithm.hpp"

namespace pith {

// The mean of all calls but the first, which also waits for what ranks are behind with. The longest
// counts: a rank waits in one call for the data of several.
struct ToldRun {
  static constexpr double unknown_s = std::numeric_limits<double>::infinity();

  // A run has no time if this is not its next call: others were running, or choices changed.
  void add(const CallPlan& plan, std::size_t bytes_of_call, double seconds_of_call) {
    if (plan.place == 0) *this = {plan.algorithm, plan.variant};
    if (plan.place != calls || plan.algorithm != algorithm || plan.variant != variant) {
      seconds = unknown_s;
    }
    if (calls++ == 0) return;
    seconds += seconds_of_call;
    bytes += bytes_of_call;
  }
  SlowestTime mean() const {
    if (calls < 2) return {unknown_s, 0};
    return {seconds / (calls - 1), bytes / (calls - 1)};
  }

  const Algorithm* algorithm = nullptr;
  Variant variant = Variant::usual;
  std::uint32_t calls = 0;
  double seconds = 0;
  std::size_t bytes = 0;
};

}  // namespace pith
