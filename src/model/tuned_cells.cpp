#include <cmath>

#include "model/tuner.hpp"

namespace pith {

std::vector<TunedCell> Tuner::cells() const {
  std::vector<TunedCell> all;
  for (const auto& [key, times] : cells_) {
    TunedCell& cell = all.emplace_back();
    cell.collective = key.first;
    cell.size = SizeClass::of_index(key.second);
    cell.chosen = model_.learns() ? times.chosen : planned(key, Choices::Cell());
    cell.settled = wanted_.at(cell.collective, cell.size).rival_count == 0;
    cell.timed_calls = times.calls;
    for (const CellTimes::Trial& trial : times.trials) {
      const RecentTimes& its = trial.times;
      if (trial.era != era_ || its.count() == 0) continue;
      cell.tried.push_back({trial.plan, its.count(), std::exp(its.median()), its.doubt()});
    }
  }
  return all;
}

}  // namespace pith
