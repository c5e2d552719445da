#include "model/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/registry.hpp"

namespace pith {

namespace {

// Calls of an algorithm until it is judged, and until nothing more is expected of it.
constexpr int few = 4;
constexpr int enough = 12;
// Less is not worth a change; a rival that is slower by more is given up early. Of logarithms.
constexpr double worthwhile = 0.03;
constexpr double hopeless = 0.1;
// Timed calls between two times that rivals are tried. Doubled each time, and halved where that has
// changed the choice: on links that keep changing, what trying costs stays bounded.
constexpr std::uint64_t least_patience = 256;

}  // namespace

Tuner::Tuner(const Model& model)
    : model_(model), start_(model.start()), wanted_(start_), correction_(algorithm_table.size()) {}

Tuner::Prediction Tuner::predict(Choices::Place place, std::size_t bytes) const {
  const double nominal = model_.nominal_cost(Choices::algorithm_at(place), bytes);
  const Estimated factor = correction_.factor(place, bytes);
  return {std::log(nominal) + std::log(factor.value), factor.log_sd};
}

Tuner::Trial& Tuner::trial(Learning& cell, Choices::Place place) {
  const auto found = std::ranges::find(cell.trials, place, &Trial::place);
  if (found != cell.trials.end()) return *found;
  return cell.trials.emplace_back(Trial{place});
}

Tuner::Learning& Tuner::learning(const CallTime& time) {
  const Collective collective = time.algorithm->collective;
  const auto [found, is_new] = cells_.try_emplace({collective, SizeClass(time.bytes).index()});
  Learning& cell = found->second;
  cell.bytes = time.bytes;
  if (is_new) {
    cell.chosen = Choices::place_of(model_.algorithm(collective, time.bytes));
    cell.patience = least_patience;
  }
  return cell;
}

// The first call of an algorithm, which allocates what later ones use, is not counted.
void Tuner::add(const CallTime& time) {
  const double nominal = model_.nominal_cost(*time.algorithm, time.bytes);
  if (!(nominal > 0) || !(time.seconds > 0)) return;
  const Key key{time.algorithm->collective, SizeClass(time.bytes).index()};
  Learning& cell = learning(time);
  ++cell.calls;
  const Choices::Place place = Choices::place_of(*time.algorithm);
  if (trial(cell, place).samples++ == 0) return;
  const bool settled = wanted_.at(key.first, SizeClass(time.bytes)).rival_count == 0;
  const bool stepped = settled && place == cell.chosen && is_step(cell, time);
  correction_.add(place, time.bytes, time.seconds, nominal);
  if (stepped && cell.calls > cell.settled_at + cell.patience) return try_again(key, cell);
  if (!settled) decide(key, cell);
}

bool Tuner::is_step(Learning& cell, const CallTime& time) {
  const double surprise = (std::log(time.seconds) - predict(cell.chosen, time.bytes).log_s) /
                          correction_.noise(cell.chosen, time.bytes);
  const bool late = cell.steps.late.add(surprise, cell.calls);
  const bool early = cell.steps.early.add(-surprise, cell.calls);
  if (late || early) cell.steps = {};
  return late || early;
}

void Tuner::try_again(const Key& key, Learning& cell) {
  const SizeClass size(cell.bytes);
  const Choices::Cell& start = start_.at(key.first, size);
  Choices::Cell& wanted = wanted_.at(key.first, size);
  wanted.add_rival(Choices::place_of(model_.algorithm(key.first, cell.bytes)));
  for (std::size_t i = 0; i < start.rival_count; ++i) wanted.add_rival(start.rivals[i]);
  wanted.remove_rival(cell.chosen);
  if (wanted.rival_count == 0) return;
  wanted.is_new = true;
  cell.trials.clear();
  cell.patience *= 2;
  correction_.forget(cell.chosen, cell.bytes);
  for (std::size_t i = 0; i < wanted.rival_count; ++i) {
    correction_.forget(wanted.rivals[i], cell.bytes);
  }
}

void Tuner::decide(const Key& key, Learning& cell) {
  Choices::Cell& wanted = wanted_.at(key.first, SizeClass(cell.bytes));
  if (trial(cell, cell.chosen).samples <= few) return;
  const Choices::Cell before = wanted;
  for (std::size_t i = 0; i < before.rival_count; ++i) {
    const Choices::Place rival = before.rivals[i];
    const int samples = trial(cell, rival).samples;
    if (samples <= few) continue;
    const Prediction ours = predict(cell.chosen, cell.bytes);
    const Prediction its = predict(rival, cell.bytes);
    const double gain = ours.log_s - its.log_s;
    const double doubt = std::hypot(ours.log_sd, its.log_sd);
    const bool is_known = samples > enough;
    const bool is_better = gain > worthwhile && gain > (is_known ? 1 : 2) * doubt;
    const bool is_worse = gain < -std::max(hopeless, 3 * doubt);
    if (is_better) choose(key, cell, rival);
    if (is_better || is_known || is_worse) wanted.remove_rival(rival);
  }
  if (wanted == before || wanted.rival_count > 0) return;
  wanted.is_new = false;
  cell.settled_at = cell.calls;
}

void Tuner::choose(const Key& key, Learning& cell, Choices::Place place) {
  const auto told = [&](Choices::Place one) {
    return fmt::format("{} {:.3g} us", Choices::algorithm_at(one).name,
                       std::exp(predict(one, cell.bytes).log_s) * 1e6);
  };
  reasons_.push_back(fmt::format("{} of up to {} bytes: {} instead of {}", name_of(key.first),
                                 SizeClass(cell.bytes).largest(), told(place), told(cell.chosen)));
  cell.chosen = place;
  cell.patience = std::max(cell.patience / 2, least_patience);
  wanted_.at(key.first, SizeClass(cell.bytes)).chosen = place;
}

}  // namespace pith
