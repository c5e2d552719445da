#include <cmath>

#include "model/tuner.hpp"

namespace pith {

std::vector<TunedCell> Tuner::cells() const {
  std::vector<TunedCell> all;
  for (const auto& [key, learning] : cells_) {
    TunedCell& cell = all.emplace_back();
    cell.collective = key.first;
    cell.size = SizeClass::of_index(key.second);
    cell.chosen = model_.learns() ? learning.chosen : planned(key, Choices::Cell());
    cell.settled = wanted_.at(cell.collective, cell.size).rival_count == 0;
    cell.timed_calls = learning.calls;
    for (const Trial& trial : learning.trials) {
      const RecentTimes& times = trial.times;
      if (trial.era != era_ || times.count() == 0) continue;
      cell.tried.push_back({trial.plan, times.count(), std::exp(times.median()), times.doubt()});
    }
  }
  return all;
}

}  // namespace pith
