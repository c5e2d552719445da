#include "model/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "collectives/registry.hpp"
#include "model/call_link.hpp"
#include "model/nominal.hpp"
#include "model/turn.hpp"

namespace pith {

namespace {

// Calls of a plan until it is judged, and until nothing more is expected of it.
constexpr std::size_t few = calls_to_judge;
constexpr std::size_t enough = 12;
// Less is not worth a change; a rival that is slower by more is given up. Of logarithms.
constexpr double worthwhile = 0.03;
constexpr double hopeless = 0.1;
// So much cost functions are.
constexpr double usually_wrong = 0.25;
// Earlier by so much, and by three times the noise, no single call is by accident. Late are some.
constexpr double clearly_early = 0.2;

// What trying anew may cost in all, however often links change.
constexpr bool may_try(std::uint64_t calls, std::uint64_t tried) {
  constexpr std::uint64_t at_first = 128;
  constexpr std::uint64_t one_in = 64;
  return tried < at_first + calls / one_in;
}

// After so many times their median may be another one. The first calls over new connections take
// longer, and where ranks run ahead of each other a long call is followed by a short one.
bool says_more(std::size_t times, bool is_guess) {
  return (is_guess || times >= few) && std::has_single_bit(times);
}

// The kernel's round trip is believed until the first step.
LinkGuess guess_from(const LinkCost& link, const Model& model, bool is_start) {
  LinkGuess guess{link};
  guess.near = is_start && model.is_near();
  if (is_start && link.alpha != nominal::wire.alpha) guess.alpha_doubt = LinkGuess::by_round_trip;
  return guess;
}

enum class Verdict : std::uint8_t { open, better, not_better };

// A single early time decides only where half of the calls are trials.
Verdict judge(const RecentTimes& ours, const RecentTimes& its, Choices::Trials trials) {
  constexpr double surely = 3;
  if (ours.count() < few || its.count() == 0) return Verdict::open;
  const double gain = ours.median() - its.median();
  const double noise = surely * ours.deviation();
  const std::size_t early = trials == Choices::Trials::often ? 1 : 2;
  if (its.count() >= early && gain > std::max(clearly_early, noise)) return Verdict::better;
  const bool is_late = its.least() - ours.median() > std::max(hopeless, noise);
  if (its.count() > 2 && is_late) return Verdict::not_better;
  if (its.count() < few) return Verdict::open;
  const double doubt = std::hypot(ours.doubt(), its.doubt());
  const bool is_known = its.count() >= enough;
  if (gain > worthwhile && gain > (is_known ? 1.5 : surely) * doubt) return Verdict::better;
  const bool is_worse = gain < -std::max(hopeless, surely * doubt);
  return is_known || is_worse ? Verdict::not_better : Verdict::open;
}

}  // namespace

Tuner::Tuner(const Model& model)
    : model_(model),
      over_links_(!model.views()),
      start_(model.start()),
      wanted_(start_),
      link_(model.link()),
      era_began_(link_) {}

void Tuner::add(CellTimes::Trial& trial, double seconds, bool prompt) const {
  if (trial.era != era_) trial.times = trial.prompt = {};
  trial.era = era_;
  trial.link = link_;
  trial.times.add(seconds);
  if (prompt) trial.prompt.add(seconds);
}

Choices::Plan Tuner::planned(const Key& key, const Choices::Cell& cell) const {
  if (cell.chosen != Choices::by_model) return cell.chosen;
  return Choices::plan_of(model_.algorithm(key.first, SizeClass::of_index(key.second).largest()));
}

CellTimes& Tuner::cell_of(const CallTime& time) {
  const Key key{time.algorithm->collective, SizeClass(time.bytes).index()};
  const auto [found, is_new] = cells_.try_emplace(key);
  CellTimes& cell = found->second;
  cell.bytes = time.bytes;
  if (is_new) cell.chosen = planned(key, wanted(key));
  return cell;
}

double Tuner::log_cost(const CellTimes& cell, Plan plan, const LinkCost& link) const {
  const CallTime call = cell.call(plan);
  return std::log(model_.cost(*call.algorithm, call.bytes, call.variant, &link));
}

// What the call would have taken at the largest size of its class: programs may have several sizes
// in one, and make every eighth call, a rival's, by the same of them.
double Tuner::at_largest(const CallTime& time) const {
  const auto cost = [&](std::size_t bytes) {
    return model_.cost(*time.algorithm, bytes, time.variant, &link_);
  };
  const double own = cost(time.bytes);
  return own > 0 ? time.seconds * cost(SizeClass(time.bytes).largest()) / own : 0;
}

// The first call of a plan, which allocates what later ones use, is not counted, unless the choice
// is a guess: then times differ by more.
void Tuner::add(const CallTime& call) {
  const CellTimes::Time single{at_largest(call), slack_of(call)};
  if (!(single.seconds > 0) || std::isinf(single.seconds)) return;
  const Key key{call.algorithm->collective, SizeClass(call.bytes).index()};
  CellTimes& cell = cell_of(call);
  const Plan plan = Choices::plan_of(*call.algorithm, call.variant);
  const CallRun kind = run_of(key.first, SizeClass(call.bytes).largest(), model_.link());
  const bool runs = !Turns::are_single(wanted(key), kind);
  const bool is_told = whose_time(key.first, model_.link()) == WhoseTime::slowest;
  const std::optional<CellTimes::Time> time =
      runs && !is_told ? cell.add_to_run(plan, single, kind) : single;
  if (time || !kind.is_one_time()) {
    ++cell.calls;
    cell.tried += call.is_trial;
  }
  if (!time) return;
  CellTimes::Trial& its = cell.trial(plan);
  const bool is_guess = over_links_ && wanted(key).trials == Choices::Trials::often;
  const bool is_first = !std::exchange(its.begun, true);
  if (is_first && !runs && !is_guess) return;
  const double seconds = time->seconds;
  const bool prompt = over_links_ && time->prompt();
  if (plan == cell.chosen && is_step(cell, seconds)) {
    return prompt && may_be_link(cell, seconds) ? begin_era(key, cell, seconds)
                                                : try_again(key, cell, seconds);
  }
  add(its, seconds, prompt);
  if (prompt && says_more(its.prompt.count(), is_guess)) fit();
  if (wanted(key).rival_count > 0) decide(key, cell, says_more(its.times.count(), is_guess));
}

// More than 0: it followed another call at once, so that all ranks began it at about the same time.
// Else the time may be that of waiting for a rank that computes; it is not asked, as waiting is in
// it. The root of a broadcast may be some calls ahead, and then others find their data there.
double Tuner::slack_of(const CallTime& time) const {
  if (whose_time(time.algorithm->collective, model_.link()) != WhoseTime::everyones) return 0;
  constexpr double hardly = 1.0 / 16;
  const double expected = model_.cost(*time.algorithm, time.bytes, time.variant, &link_);
  return hardly * std::min(expected, time.seconds) - time.gap_s;
}

// Whether another link would make the choice take this time.
bool Tuner::may_be_link(const CellTimes& cell, double seconds) const {
  const CallTime call = cell.call(cell.chosen, seconds);
  LinkGuess guess{link_};
  guess.near = era_ == 0 && model_.is_near();
  return is_another_link(fit_link(model_, std::span(&call, 1), guess).link, link_);
}

bool Tuner::is_step(CellTimes& cell, double seconds) const {
  const RecentTimes its = cell.times(cell.chosen, era_);
  constexpr double remembered = 64;
  if (its.count() < few) return false;
  const double surprise = (std::log(seconds) - its.median()) / std::sqrt(cell.noise.variance());
  cell.noise.learn(surprise, 1, remembered);
  const bool late = cell.steps.late.add(surprise, cell.calls);
  const bool early = cell.steps.early.add(-surprise, cell.calls);
  if (late || early) cell.steps = {};
  return late || early;
}

void Tuner::try_again(const Key& key, CellTimes& cell, double seconds) {
  if (!may_try(cell.calls, cell.tried)) return;
  cell.forget_times();
  if (over_links_) add(cell.trial(cell.chosen), seconds, false);
  const Choices::Cell fresh = model_.cell_on(link_, key.first, SizeClass(cell.bytes));
  carry_over(key, cell, fresh);
  if (over_links_ && fresh.rival_count > 0) try_promising(key, cell);
}

void Tuner::begin_era(const Key& key, CellTimes& cell, double seconds) {
  ++era_;
  era_began_ = link_;
  for (auto& [of, one] : cells_) one.run = {};
  add(cell.trial(cell.chosen), seconds, true);
  fit();
  const Choices::Cell fresh = model_.cell_on(link_, key.first, SizeClass(cell.bytes));
  carry_over(key, cell, fresh);
  if (fresh.rival_count > 0 && may_try(cell.calls, cell.tried)) try_promising(key, cell);
}

// Calls of one size do not tell whether messages or bytes take longer. What gains most if it is the
// one or the other is tried first, and tells.
void Tuner::try_promising(const Key& key, CellTimes& cell) {
  const std::vector<LinkCost> links = fitting_links(model_, cell.calls_of(era_, false), link_);
  std::vector<std::pair<double, Plan>> found;
  for (const Algorithm& one : algorithms()) {
    const bool serves_it = serves(one, model_.shape(SizeClass(cell.bytes).largest()));
    if (one.collective != key.first || !serves_it) continue;
    const Plan plan = Choices::plan_of(one);
    found.emplace_back(least_log_cost(model_, cell.call(plan), links), plan);
  }
  std::ranges::sort(found);
  Choices::Cell& wanted = this->wanted(key);
  const Choices::Cell before = std::exchange(wanted, {.chosen = wanted.chosen});
  const double ours = own_time(cell, links);
  for (const auto& [least, plan] : found) {
    if (least < ours + usually_wrong) wanted.add_rival(plan);
  }
  for (std::size_t i = 0; i < before.rival_count; ++i) {
    if (cell.times(before.rivals[i], era_).count() > 0) wanted.add_rival(before.rivals[i]);
  }
  wanted.remove_rival(cell.chosen);
  if (wanted.rival_count > 0) wanted.trials = Choices::Trials::often;
}

// Of this era.
std::vector<CallTime> Tuner::link_times() const {
  std::vector<CallTime> calls;
  for (const auto& [key, cell] : cells_) {
    std::ranges::copy(cell.calls_of(era_, true), std::back_inserter(calls));
  }
  return calls;
}

std::optional<LinkTable::OfCalls> Tuner::learnt_link() const {
  const std::vector<CallTime> calls = link_times();
  if (calls.empty()) return std::nullopt;
  const LinkGuess before = guess_from(era_began_, model_, era_ == 0);
  const LinkFit fit = fit_link(model_, calls, before);
  const bool is_sure = explains_better(fit.link, link_, model_, calls);
  const LinkCost& link = is_sure || !is_another_link(fit.link, link_) ? fit.link : link_;
  return LinkTable::OfCalls{{link.alpha, fit.alpha_doubt}, {link.beta, fit.beta_doubt}};
}

// All choices follow where the link is surely another than was thought: calls of one size leave
// open whether messages or bytes take long, and fits wander.
void Tuner::fit() {
  const std::vector<CallTime> calls = link_times();
  const LinkCost found = fit_link(model_, calls, guess_from(era_began_, model_, era_ == 0)).link;
  if (!is_another_link(found, link_) || !explains_better(found, link_, model_, calls)) return;
  const LinkCost before = std::exchange(link_, found);
  reasons_.push_back(
      fmt::format("a message takes {:.3g} us and a byte {:.3g} ns instead of {:.3g} and {:.3g}",
                  found.alpha * 1e6, found.beta * 1e9, before.alpha * 1e6, before.beta * 1e9));
  const Choices known = std::exchange(wanted_, choices_on(link_, model_));
  for (auto& [key, cell] : cells_) {
    const SizeClass size(cell.bytes);
    const Choices::Cell fresh = std::exchange(wanted(key), known.at(key.first, size));
    carry_over(key, cell, fresh);
  }
}

// Of those that were tried. The time of a plan was its cost on the link of the time times some
// factor, and is its cost on the link as it is now times that.
Choices::Plan Tuner::likely_best(CellTimes& cell) const {
  constexpr double clearly = 0.1;
  const auto expected = [&](const CellTimes::Trial& one) {
    const double change = log_cost(cell, one.plan, link_) - log_cost(cell, one.plan, one.link);
    return one.times.median() + (one.era == era_ ? 0 : change);
  };
  const CellTimes::Trial chosen = cell.trial(cell.chosen);
  if (chosen.times.count() == 0) return cell.chosen;
  const CellTimes::Trial* best = &chosen;
  for (const CellTimes::Trial& one : cell.trials) {
    if (one.times.count() > 0 && expected(one) < expected(*best)) best = &one;
  }
  return expected(*best) < expected(chosen) - clearly ? best->plan : cell.chosen;
}

// Where the link is known to be another one, what was never tried is chosen if it should be faster
// by more than cost functions are usually wrong.
Choices::Plan Tuner::expected_best(const Key& key, CellTimes& cell,
                                   const Choices::Cell& fresh) const {
  const Plan known = likely_best(cell);
  const Plan predicted = planned(key, fresh);
  if (cell.trial(predicted).begun) return known;
  const double gain = log_cost(cell, known, link_) - log_cost(cell, predicted, link_);
  return gain > usually_wrong ? predicted : known;
}

// What is known of a cell meets what would be chosen if nothing were.
void Tuner::carry_over(const Key& key, CellTimes& cell, const Choices::Cell& fresh) {
  if (model_.is_forced(key.first)) return;
  const bool tries = may_try(cell.calls, cell.tried);
  Choices::Cell& wanted = this->wanted(key);
  Choices::Cell next;
  next.chosen = tries ? expected_best(key, cell, fresh) : likely_best(cell);
  const auto propose = [&](Plan plan) {
    if (tries && cell.times(plan, era_).count() < few) next.add_rival(plan);
  };
  // The choice until now stays a rival, and is judged by the times that it has.
  if (tries) next.add_rival(cell.chosen);
  propose(planned(key, fresh));
  for (std::size_t i = 0; tries && i < wanted.rival_count; ++i) next.add_rival(wanted.rivals[i]);
  for (std::size_t i = 0; i < fresh.rival_count; ++i) propose(fresh.rivals[i]);
  next.remove_rival(next.chosen);
  // Before any step nothing is known to be wrong, and trials of half the calls cost a lot.
  const bool is_guess = era_ > 0 || !over_links_;
  if (next.rival_count > 0)
    next.trials = is_guess ? Choices::Trials::often : Choices::Trials::seldom;
  cell.chosen = next.chosen;
  cell.chunks_tried = false;
  wanted = next;
}

// The logarithm of what the choice takes, or should while it has no times.
double Tuner::own_time(CellTimes& cell, std::span<const LinkCost> links) const {
  const RecentTimes ours = cell.times(cell.chosen, era_);
  return ours.count() > 0 ? ours.median() : least_log_cost(model_, cell.call(cell.chosen), links);
}

// Rivals that can no longer win; not by a single time, which may be that of a first call. Whether
// one that is left should be faster, by its times or, before it has any, on a link that may be.
bool Tuner::drop_hopeless(CellTimes& cell, Choices::Cell& wanted) const {
  const std::vector<LinkCost> links = fitting_links(model_, cell.calls_of(era_, false), link_);
  const double ours = own_time(cell, links);
  const Choices::Cell before = wanted;
  bool is_guess = false;
  for (std::size_t i = 0; i < before.rival_count; ++i) {
    const Plan rival = before.rivals[i];
    const RecentTimes its = cell.times(rival, era_);
    const double expected = least_log_cost(model_, cell.call(rival), links) - ours;
    const double more = its.count() > 0 ? its.median() - ours : expected;
    const bool is_hopeless = more > hopeless && expected > usually_wrong;
    if (is_hopeless && its.count() != 1) wanted.remove_rival(rival);
    is_guess |= more < -worthwhile;
  }
  return is_guess;
}

// `says_more`: of the link, if the choice is a guess.
void Tuner::decide(const Key& key, CellTimes& cell, bool says_more) {
  Choices::Cell& wanted = this->wanted(key);
  const Choices::Cell before = wanted;
  bool is_judged = false;
  bool is_seen = true;
  for (std::size_t i = 0; i < before.rival_count; ++i) {
    const Plan rival = before.rivals[i];
    const RecentTimes its = cell.times(rival, era_);
    const Verdict verdict = judge(cell.times(cell.chosen, era_), its, before.trials);
    if (verdict == Verdict::better) choose(key, cell, rival);
    if (verdict != Verdict::open) wanted.remove_rival(rival);
    is_judged |= verdict != Verdict::open || its.count() >= few;
    is_seen &= verdict != Verdict::open || its.count() > 0;
  }
  // Early turns are over, or will be soon; what was a guess is one no more.
  const bool is_guess = wanted.trials == Choices::Trials::often;
  if (is_guess && over_links_) is_seen = says_more && !drop_hopeless(cell, wanted);
  if (is_guess ? is_seen : is_judged) wanted.trials = Choices::Trials::seldom;
  if (wanted.rival_count == 0) wanted.trials = Choices::Trials::early;
  if (wanted != before && wanted.rival_count == 0) try_chunks(key, cell);
}

// Adds the chosen algorithm with other chunks as rivals, where its messages are that long.
void Tuner::try_chunks(const Key& key, CellTimes& cell) {
  if (std::exchange(cell.chunks_tried, true)) return;
  if (Choices::variant_of(cell.chosen) != Variant::usual) return;
  const bool is_cut = key.first == Collective::allreduce;
  const std::size_t piece = cell.bytes / (is_cut ? static_cast<std::size_t>(model_.ranks()) : 1);
  const Algorithm& algorithm = Choices::algorithm_of(cell.chosen);
  Choices::Cell& wanted = this->wanted(key);
  for (const Variant variant : {Variant::long_chunks, Variant::short_chunks}) {
    const Variant longer = variant == Variant::long_chunks ? Variant::usual : variant;
    if (piece <= varied(model_.tuning(), longer).chunk_bytes) continue;
    wanted.add_rival(Choices::plan_of(algorithm, variant));
  }
  if (wanted.rival_count > 0) wanted.trials = Choices::Trials::seldom;
}

void Tuner::choose(const Key& key, CellTimes& cell, Plan plan) {
  const auto told = [&](Plan one) {
    return fmt::format("{} {:.3g} us", Choices::text_of(one),
                       std::exp(cell.times(one, era_).median()) * 1e6);
  };
  reasons_.push_back(fmt::format("{} of up to {} bytes: {} instead of {}", name_of(key.first),
                                 SizeClass(cell.bytes).largest(), told(plan), told(cell.chosen)));
  cell.chosen = plan;
  wanted(key).chosen = plan;
}

}  // namespace pith
