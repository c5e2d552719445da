#include "model/cell_times.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pith {

std::optional<double> CellTimes::Trial::mean_of_run(double seconds) {
  run_s += seconds;
  if (++run_calls < calls_of_run && run_s < time_of_run_s) return std::nullopt;
  return std::exchange(run_s, 0) / std::exchange(run_calls, 0);
}

CellTimes::Trial& CellTimes::trial(Plan plan) {
  const auto found = std::ranges::find(trials, plan, &Trial::plan);
  if (found != trials.end()) return *found;
  return trials.emplace_back(plan);
}

RecentTimes CellTimes::times(Plan plan, std::uint64_t era) {
  const Trial& its = trial(plan);
  return its.era == era ? its.times : RecentTimes();
}

CallTime CellTimes::call(Plan plan, double seconds) const {
  return {&Choices::algorithm_of(plan), Choices::variant_of(plan), SizeClass(bytes).largest(),
          seconds};
}

std::vector<CallTime> CellTimes::calls_of(std::uint64_t era, bool prompt) const {
  std::vector<CallTime> all;
  for (const Trial& one : trials) {
    const RecentTimes& its = prompt ? one.prompt : one.times;
    if (one.era == era && its.count() > 0) all.push_back(call(one.plan, std::exp(its.median())));
  }
  return all;
}

void CellTimes::forget_times() {
  for (Trial& one : trials) one.times = one.prompt = {};
}

}  // namespace pith
