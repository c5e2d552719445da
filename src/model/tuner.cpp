#include "model/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/registry.hpp"

namespace pith {

namespace {

// Calls of a plan until it is judged, and until nothing more is expected of it.
constexpr std::size_t few = 4;
constexpr std::size_t enough = 12;
// Timed calls of a cell in which rivals are tried without being agreed to be new, or fewer.
constexpr std::uint64_t first_calls = 240;
// Less is not worth a change; a rival that is slower by more is given up early. Of logarithms.
constexpr double worthwhile = 0.03;
constexpr double hopeless = 0.1;
// Timed calls between two times that rivals are tried. Doubled each time, and halved where that has
// changed the choice: on links that keep changing, what trying costs stays bounded.
constexpr std::uint64_t least_patience = 512;

}  // namespace

Tuner::Tuner(const Model& model) : model_(model), start_(model.start()), wanted_(start_) {}

Tuner::Trial& Tuner::trial(Learning& cell, Choices::Plan plan) {
  const auto found = std::ranges::find(cell.trials, plan, &Trial::plan);
  if (found != cell.trials.end()) return *found;
  return cell.trials.emplace_back(plan);
}

Tuner::Learning& Tuner::learning(const CallTime& time) {
  const Collective collective = time.algorithm->collective;
  const auto [found, is_new] = cells_.try_emplace({collective, SizeClass(time.bytes).index()});
  Learning& cell = found->second;
  cell.bytes = time.bytes;
  if (is_new) {
    cell.chosen = Choices::plan_of(model_.algorithm(collective, time.bytes));
    cell.patience = least_patience;
  }
  return cell;
}

// What the call would have taken at the largest size of its class: programs may have several sizes
// in one, and make every fourth call, a rival's, by the same of them.
double Tuner::at_largest(const CallTime& time) const {
  const auto cost = [&](std::size_t bytes) {
    return model_.cost(*time.algorithm, bytes, time.variant);
  };
  const double own = cost(time.bytes);
  return own > 0 ? time.seconds * cost(SizeClass(time.bytes).largest()) / own : 0;
}

// The first call of a plan, which allocates what later ones use, is not counted.
void Tuner::add(const CallTime& time) {
  const double seconds = at_largest(time);
  if (!(seconds > 0)) return;
  const Key key{time.algorithm->collective, SizeClass(time.bytes).index()};
  Learning& cell = learning(time);
  ++cell.calls;
  const Choices::Plan plan = Choices::plan_of(*time.algorithm, time.variant);
  Trial& its = trial(cell, plan);
  if (!std::exchange(its.begun, true)) return;
  const bool settled = wanted_.at(key.first, SizeClass(time.bytes)).rival_count == 0;
  const bool stepped = settled && plan == cell.chosen && is_step(cell, seconds);
  its.times.add(seconds);
  if (stepped && cell.calls > cell.settled_at + cell.patience) return try_again(key, cell);
  if (!settled) decide(key, cell);
}

bool Tuner::is_step(Learning& cell, double seconds) {
  const RecentTimes& times = trial(cell, cell.chosen).times;
  if (times.count() < few) return false;
  const double surprise = (std::log(seconds) - times.median()) / times.deviation();
  const bool late = cell.steps.late.add(surprise, cell.calls);
  const bool early = cell.steps.early.add(-surprise, cell.calls);
  if (late || early) cell.steps = {};
  return late || early;
}

void Tuner::try_again(const Key& key, Learning& cell) {
  const SizeClass size(cell.bytes);
  const Choices::Cell& start = start_.at(key.first, size);
  Choices::Cell& wanted = wanted_.at(key.first, size);
  wanted.add_rival(Choices::plan_of(model_.algorithm(key.first, cell.bytes)));
  for (std::size_t i = 0; i < start.rival_count; ++i) wanted.add_rival(start.rivals[i]);
  wanted.remove_rival(cell.chosen);
  if (wanted.rival_count == 0) return;
  wanted.is_new = true;
  cell.trials.clear();
  cell.chunks_tried = false;
  cell.patience *= 2;
}

void Tuner::decide(const Key& key, Learning& cell) {
  Choices::Cell& wanted = wanted_.at(key.first, SizeClass(cell.bytes));
  if (trial(cell, cell.chosen).times.count() < few) return;
  const Choices::Cell before = wanted;
  for (std::size_t i = 0; i < before.rival_count; ++i) {
    const Choices::Plan rival = before.rivals[i];
    const RecentTimes its = trial(cell, rival).times;
    if (its.count() < few) continue;
    const RecentTimes& ours = trial(cell, cell.chosen).times;
    const double gain = ours.median() - its.median();
    const double doubt = std::hypot(ours.doubt(), its.doubt());
    const bool is_known = its.count() >= enough;
    const bool is_better = gain > worthwhile && gain > (is_known ? 1.5 : 3) * doubt;
    const bool is_worse = gain < -std::max(hopeless, 3 * doubt);
    if (is_better) choose(key, cell, rival);
    if (is_better || is_known || is_worse) wanted.remove_rival(rival);
  }
  // The first calls are over; those that have not been judged go on by agreement.
  wanted.is_new |= wanted.rival_count > 0 && cell.calls > first_calls;
  if (wanted == before || wanted.rival_count > 0 || try_chunks(key, cell)) return;
  wanted.is_new = false;
  cell.settled_at = cell.calls;
}

// Adds the chosen algorithm with other chunks as rivals, where its messages are that long.
bool Tuner::try_chunks(const Key& key, Learning& cell) {
  if (std::exchange(cell.chunks_tried, true)) return false;
  if (Choices::variant_of(cell.chosen) != Variant::usual) return false;
  const bool is_cut = key.first == Collective::allreduce;
  const std::size_t piece = cell.bytes / (is_cut ? static_cast<std::size_t>(model_.ranks()) : 1);
  const Algorithm& algorithm = Choices::algorithm_of(cell.chosen);
  Choices::Cell& wanted = wanted_.at(key.first, SizeClass(cell.bytes));
  for (const Variant variant : {Variant::long_chunks, Variant::short_chunks}) {
    const Variant longer = variant == Variant::long_chunks ? Variant::usual : variant;
    if (piece <= varied(model_.tuning(), longer).chunk_bytes) continue;
    wanted.add_rival(Choices::plan_of(algorithm, variant));
  }
  wanted.is_new |= wanted.rival_count > 0;
  return wanted.rival_count > 0;
}

void Tuner::choose(const Key& key, Learning& cell, Choices::Plan plan) {
  const auto told = [&](Choices::Plan one) {
    return fmt::format("{} {:.3g} us", Choices::text_of(one),
                       std::exp(trial(cell, one).times.median()) * 1e6);
  };
  reasons_.push_back(fmt::format("{} of up to {} bytes: {} instead of {}", name_of(key.first),
                                 SizeClass(cell.bytes).largest(), told(plan), told(cell.chosen)));
  cell.chosen = plan;
  cell.patience = std::max(cell.patience / 2, least_patience);
  wanted_.at(key.first, SizeClass(cell.bytes)).chosen = plan;
}

}  // namespace pith
