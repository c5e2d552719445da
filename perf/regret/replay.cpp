#include "regret/replay.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include "machine.hpp"

namespace pith_perf {
namespace {

using pith_bench::seconds_now;

// Longer calls are tried once, and not repeated before they are timed.
constexpr double long_call_s = 0.05;

Duration duration_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const std::size_t half = times.size() / 2;
  const double median = times.size() % 2 == 1 ? times[half] : (times[half - 1] + times[half]) / 2;
  return {median, times.front(), times.back(), static_cast<int>(times.size())};
}

}  // namespace

Replay::Replay(const ReplayLimits& limits, const Team& control)
    : limits_(limits), control_(control) {
  constexpr int warm_up = 3;
  constexpr int samples = 11;
  constexpr double slack_s = 20e-6;
  std::vector<double> taken;
  for (int i = 0; i < warm_up + samples; ++i) {
    const double all_here = meet();
    const double took = control_.average(seconds_now() - all_here, Average::max);
    if (i >= warm_up) taken.push_back(took);
  }
  meeting_s_ = duration_of(std::move(taken)).median * 1.2 + slack_s;
}

// When the last rank came: all have one clock, as they run on one machine.
double Replay::meet() const { return control_.average(seconds_now(), Average::max); }

// Seconds per call until this rank is done. All begin at the same time: after a barrier some begin
// later by as much as a message takes, and would find their data already there.
double Replay::timed(const Call& call, int calls) const {
  const double start = meet() + meeting_s_;
  while (seconds_now() < start) sched_yield();
  for (int i = 0; i < calls; ++i) call();
  return (seconds_now() - start) / calls;
}

// Beside the calls, ranks need some time to agree on what was learnt.
void Replay::let_learn(const Call& call, double allowed_s) const {
  constexpr int enough_calls = 1000;
  constexpr double agreement_s = 0.3;
  constexpr int batch = 25;
  const double start = seconds_now();
  double taken = 0;
  for (int calls = 0; taken < allowed_s && (calls < enough_calls || taken < agreement_s);
       calls += batch) {
    for (int i = 0; i < batch; ++i) call();
    taken = control_.average(seconds_now() - start, Average::rank0);
  }
}

// The least of some calls, as the first pays for memory and windows that grow.
double Replay::try_out(const Call& call) const {
  constexpr double enough_s = 0.01;
  constexpr int calls_max = 20;
  double least = 0;
  double sum = 0;
  for (int i = 0; i < calls_max; ++i) {
    const double took = control_.average(timed(call, 1), Average::max);
    least = i == 0 ? took : std::min(least, took);
    sum += took;
    if (took > long_call_s || (i > 1 && sum > enough_s)) break;
  }
  return least;
}

// Ends early where the default takes far too long, or all of them together.
std::vector<double> Replay::try_all(const std::vector<Call>& contestants, double patience_s) const {
  constexpr double far = 3;
  std::vector<double> tried;
  double spent = 0;
  for (const Call& call : contestants) {
    tried.push_back(try_out(call));
    spent += tried.back();
    if (spent > patience_s || tried.front() > far * limits_.call_s) break;
  }
  return tried;
}

bool Replay::goes_on(int round, double start_s, double allowed_s) const {
  if (round < limits_.rounds_min) return true;
  if (round >= limits_.rounds_max) return false;
  const bool has_time = seconds_now() - start_s < allowed_s;
  return control_.average(has_time ? 1 : 0, Average::rank0) > 0;
}

// This rank's times by contestant; `order` has those that take part.
std::vector<std::vector<double>> Replay::rounds(const std::vector<Call>& contestants,
                                                std::vector<std::size_t> order, int calls,
                                                double allowed_s) {
  std::vector<std::vector<double>> times(contestants.size());
  const double start = seconds_now();
  for (int round = 0; goes_on(round, start, allowed_s); ++round) {
    std::shuffle(order.begin(), order.end(), random_);
    for (const std::size_t one : order) {
      if (warms_up_) contestants[one]();
      times[one].push_back(timed(contestants[one], calls));
    }
  }
  return times;
}

Replayed Replay::run(const std::vector<Call>& contestants, double allowed_s, double patience_s) {
  Replayed result;
  const std::vector<double> tried = try_all(contestants, patience_s);
  const double best = *std::min_element(tried.begin(), tried.end());
  if (best > limits_.call_s) return {"over the limit of a call", {}, 0};
  if (tried.size() < contestants.size()) return {"no time", {}, 0};
  result.calls = std::clamp(static_cast<int>(limits_.batch_s / best), 1, 1000);
  warms_up_ = best < long_call_s;
  std::vector<std::size_t> order;
  double round_s = 0;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    if (i > 1 && tried[i] > limits_.hopeless * best) continue;
    order.push_back(i);
    round_s += tried[i] * (result.calls + (warms_up_ ? 1 : 0));
  }
  if (round_s * limits_.rounds_min > patience_s) return {"no time", {}, 0};
  const std::vector<std::vector<double>> times =
      rounds(contestants, order, result.calls, allowed_s);
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    if (times[i].empty()) {
      result.durations.push_back({tried[i], tried[i], tried[i], 0});
      continue;
    }
    std::vector<double> slowest(times[i].size());
    must(pithAllReduce(times[i].data(), slowest.data(), slowest.size(), pithFloat64, pithMax,
                       control_.comm(0), nullptr),
         "pithAllReduce");
    result.durations.push_back(duration_of(std::move(slowest)));
  }
  return result;
}

}  // namespace pith_perf
