#include "model/cell_times.hpp"

#include <algorithm>
#include <cmath>

namespace pith {

// Not the first call, which follows one by another plan, nor the longest, which may have been
// interrupted.
std::optional<CellTimes::Time> CellTimes::add_to_run(Plan by, const Time& call,
                                                     const CallRun& kind) {
  const bool is_over = kind.is_one_time() && run.calls == kind.calls;
  if (run.plan != by || is_over) run = {by};
  if (++run.calls == 1) return std::nullopt;
  if (!kind.is_one_time() || call.seconds >= long_call_s) return call;
  run.seconds += call.seconds;
  run.longest_s = std::max(run.longest_s, call.seconds);
  run.slack_s += call.slack_s;
  ++run.counted;
  if (run.calls < kind.calls || run.counted < 2) return std::nullopt;
  return Time{(run.seconds - run.longest_s) / (run.counted - 1), run.slack_s};
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
  run = {};
}

}  // namespace pith
