#include "model/bypass_choice.hpp"

#include <algorithm>

#include "model/density_choice.hpp"
#include "model/nominal.hpp"

namespace pith {

namespace {

using Phase = BypassControl::Phase;

// Times the other's time: two calls tell enough.
constexpr double hopeless = 4;
constexpr std::uint32_t hopeless_calls = 2;
constexpr std::uint64_t shortest_wait = 64;
constexpr std::uint64_t first_interval = 4;
constexpr std::uint64_t far_interval = 8;

// There an agreement takes up to twice as long as the call (8 ranks, 5 ms: 16 of 24 ms), and times
// differ by less.
bool is_far(const WayCosts& costs) { return nominal::is_distant(costs.nominal); }

std::uint32_t calls_of_round(const BypassControl& control, const WayCosts& costs) {
  if (!is_far(costs)) return BypassControl::samples;
  return control.phase == Phase::measures ? 1 : hopeless_calls;
}

std::uint64_t interval_of(const WayCosts& costs) {
  return is_far(costs) ? far_interval : first_interval;
}

double& seconds_of(BypassControl& control, bool dense) { return control.seconds[dense ? 1 : 0]; }

bool differ(double a, double b) {
  constexpr double noise = 1.5;
  return a > noise * b || b > noise * a;
}

// Of the round so far. What disturbs a call only makes it longer, and a way's first call may be
// late, as buffers and caches are cold.
double least(const BypassControl& control) {
  return *std::min_element(control.times.begin(), control.times.begin() + control.sampled);
}

void begin_phase(BypassControl& control, Phase phase) {
  control.phase = phase;
  control.sampled = 0;
}

// Short calls, of which the agreement would be a larger share, are looked at less often.
void watch(BypassControl& control, const WayCosts& costs, std::uint64_t step) {
  constexpr double is_short = 20e-6;
  constexpr std::uint64_t most = 32;
  const double long_s = is_far(costs) ? 16 * costs.nominal.alpha : is_short;
  const bool often = seconds_of(control, control.dense) > long_s;
  control.phase = Phase::watches;
  control.next = step + control.interval;
  control.interval = std::min(2 * control.interval, often ? most : 4 * most);
}

// Calls until another trial of the way that takes `ratio` times as long is worth its cost.
std::uint64_t wait_for(double ratio, std::uint32_t losses) {
  constexpr double worth = 0.01;
  constexpr double most = 1e9;
  constexpr std::uint32_t most_doublings = 6;
  const double tried = double(ratio > hopeless ? hopeless_calls : BypassControl::samples);
  const double calls = std::clamp(tried * (ratio - 1) / worth, double(shortest_wait), most);
  return static_cast<std::uint64_t>(calls) << std::min(losses, most_doublings);
}

// Of the way that is not taken: as measured, else by the link that fits the calls so far.
double expected(BypassControl& control, const WayCosts& costs) {
  const bool other = !control.dense;
  if (seconds_of(control, other) > 0) return seconds_of(control, other);
  const LinkCost link = fitted_link(control.link, costs.nominal);
  return costs.of(other).seconds(link.alpha, link.beta);
}

void keep(BypassControl& control, const WayCosts& costs, double seconds) {
  seconds_of(control, control.dense) = seconds;
  add_call(control.link, costs.nominal, costs.of(control.dense), seconds);
}

// What the other way may take since this one's time has changed: as long as before where this one
// has become slower, and its gain to the third power where it has become faster, since this one may
// hardly use what the link has gained. A way that was far off is thus not tried at each change.
double at_best(double other, double before, double now) {
  const double change = now / before;
  return change > 1 ? other : other * change * change * change;
}

void end_measuring(BypassControl& control, const WayCosts& costs, std::uint64_t step) {
  constexpr double near = 3;  // the fitted link is rough
  const double before = seconds_of(control, control.dense);
  const double now = least(control);
  double& other = seconds_of(control, !control.dense);
  if (before > 0 && differ(before, now)) {
    other = at_best(other, before, now);
    control.link = {};
    control.retry = 0;
    control.interval = interval_of(costs);
  }
  keep(control, costs, now);
  const double ratio = expected(control, costs) / now;
  if (control.retry == 0) {
    const std::uint64_t wait = ratio <= near ? 0 : wait_for(ratio, 0);
    control.retry = std::max(step + wait, control.earliest);
  }
  if (step < control.retry) return watch(control, costs, step);
  control.dense = !control.dense;
  begin_phase(control, Phase::tries);
}

// A change for a twentieth would be for noise. A way that is left is soon tried again unless it was
// hopeless, as its times may have been disturbed. Times of some schemes vary without the link, so
// that a change of time is not believed soon after a trial in vain.
void end_trying(BypassControl& control, const WayCosts& costs, std::uint64_t step, double found) {
  constexpr double worthwhile = 0.95;
  const double other = seconds_of(control, !control.dense);
  keep(control, costs, found);
  const bool won = found < worthwhile * other;
  if (!won) control.dense = !control.dense;
  const double ratio = won ? other / found : found / other;
  const bool is_near = won && ratio <= hopeless;
  const std::uint64_t wait = is_near ? shortest_wait : wait_for(ratio, won ? 0 : control.losses);
  control.retry = step + wait;
  control.earliest = won ? step : step + wait / 16;
  control.losses = won ? 0 : control.losses + 1;
  control.interval = interval_of(costs);
  watch(control, costs, step);
}

}  // namespace

WayCosts ways_of(const Spec& spec, std::size_t count, int ranks, const LinkCost& nominal) {
  return {compressed_cost(spec, spec.density, count, ranks), dense_cost(count, ranks), nominal};
}

// On no link is the way faster that needs more bytes; how many a pair has is known roughly.
BypassControl start_ways(const WayCosts& costs, const WayStart& start) {
  constexpr double surely = 1.2;
  const bool is_always_dense = start.dense && costs.compressed.bytes > surely * costs.dense.bytes;
  BypassControl control;
  control.count = start.count;
  control.dense = start.dense;
  control.interval = interval_of(costs);
  // The first call is cold.
  control.next = start.open && !is_always_dense ? start.step + 1 : BypassControl::never;
  return control;
}

void choose_way(BypassControl& control, const WayCosts& costs, const BypassFacts& facts) {
  const std::uint64_t step = facts.step;
  control.timed = step;
  control.next = step + 1;
  if (!(facts.seconds > 0)) return;
  const double before = seconds_of(control, control.dense);
  if (control.phase == Phase::watches) {
    const bool is_due = step >= control.retry;
    if (!is_due && !differ(facts.seconds, before)) return watch(control, costs, step);
    return begin_phase(control, Phase::measures);
  }
  control.times[control.sampled++] = facts.seconds;
  const bool full = control.sampled == calls_of_round(control, costs);
  if (control.phase == Phase::measures) {
    if (full) end_measuring(control, costs, step);
    return;
  }
  const bool is_lost = control.sampled == hopeless_calls &&
                       least(control) > hopeless * seconds_of(control, !control.dense);
  if (full || is_lost) end_trying(control, costs, step, least(control));
}

}  // namespace pith
