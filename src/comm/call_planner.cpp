#include "comm/call_planner.hpp"

#include "core/log.hpp"
#include "model/turn.hpp"

namespace pith {

namespace {

std::size_t bytes_of(const CollectiveArgs& args) { return args.count * size_of(args.type); }

// Without an algorithm: the model's choice.
CallPlan plan_of(Choices::Plan plan) {
  if (plan == Choices::by_model) return {};
  return {&Choices::algorithm_of(plan), Choices::variant_of(plan)};
}

}  // namespace

void CallPlanner::begin() {
  if (!model_.learns()) return;
  learned_ = std::make_unique<Learned>();
  learned_->start = learned_->choices = model_.start();
  for (std::size_t i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    const WhoseTime whose = whose_time(collective, model_.link());
    for (std::size_t at = 0; at < SizeClass::count; ++at) {
      const std::size_t bytes = SizeClass::of_index(at).largest();
      Learned::Seat& seat = learned_->seats[i][at];
      seat.whose = whose;
      seat.kind = run_of(collective, bytes, model_.link());
      // There the two readings of a clock are nothing.
      seat.is_always_timed = bytes >= long_bytes && whose == WhoseTime::everyones;
    }
  }
}

void CallPlanner::adopt(std::string_view saved) {
  if (!learned_) return;
  const Expected<Choices> choices = Choices::restore(learned_->start, saved, model_.ranks());
  if (!choices) return log(LogLevel::warn, choices.error().message());
  const std::lock_guard lock(learned_->mutex);
  for (std::size_t i = 0; i < collective_count; ++i) {
    for (std::size_t at = 0; at < SizeClass::count; ++at) {
      learned_->adopt(static_cast<Collective>(i), SizeClass::of_index(at), *choices);
    }
  }
}

void CallPlanner::Learned::adopt(Collective collective, SizeClass size, const Choices& wanted) {
  Seat& seat = seats[static_cast<std::size_t>(collective)][size.index()];
  Choices::Cell& cell = choices.at(collective, size);
  if (wanted.at(collective, size) == cell) return;
  cell = wanted.at(collective, size);
  seat.since = seat.count;
  seat.usual_until = 0;
}

void CallPlanner::Learned::plan(CollectiveArgs& args, const Model& model) {
  const std::size_t bytes = bytes_of(args);
  const SizeClass size(bytes);
  Seat& seat = seats[static_cast<std::size_t>(args.collective)][size.index()];
  const std::uint32_t count = seat.count++;
  args.plan = count < seat.usual_until ? seat.usual
                                       : turn_in(seat, choices.at(args.collective, size), count);
  if (bytes == 0) args.plan = {args.plan.algorithm, args.plan.variant};
  if (args.plan.variant != Variant::usual) args.tuning = varied(args.tuning, args.plan.variant);
  if (args.plan.algorithm != nullptr) return;
  if (seat.bytes != bytes || seat.epoch != args.tuning.epoch) {
    seat.by_model = &model.algorithm(args.collective, bytes);
    seat.bytes = bytes;
    seat.epoch = args.tuning.epoch;
  }
  args.plan.algorithm = seat.by_model;
}

void CallPlanner::Learned::plan_uneven(CollectiveArgs& args) const {
  args.plan = plan_of(choices.at(args.collective, SizeClass(bytes_of(args))).chosen);
  if (args.plan.variant != Variant::usual) args.tuning = varied(args.tuning, args.plan.variant);
}

CallPlan CallPlanner::Learned::turn_in(Seat& seat, const Choices::Cell& cell, std::uint32_t count) {
  const Turns turns(cell, seat.whose, seat.kind, seat.since);
  seat.usual = plan_of(cell.chosen);
  seat.usual.is_timed = seat.is_always_timed;
  seat.usual_until = turns.next(count + 1);
  const Turn turn = turns.at(count);
  CallPlan plan = turn.of == TurnOf::rival ? plan_of(turn.rival) : seat.usual;
  plan.is_trial = turn.of == TurnOf::rival;
  if (turn.of == TurnOf::choice || seat.whose == WhoseTime::nobodys) return plan;
  const bool tells = seat.whose == WhoseTime::slowest;
  const bool in_run = tells && seat.kind.is_one_time();
  plan.is_told = tells && (!in_run || turn.place + 1U == seat.kind.calls);
  plan.is_timed |= plan.is_told || !tells;
  if (!in_run) return plan;
  plan.run = &seat.run;
  plan.place = turn.place;
  return plan;
}

CallPlan CallPlanner::chosen(Collective collective, std::size_t bytes) const {
  if (!learned_) return {&model_.algorithm(collective, bytes)};
  const std::lock_guard lock(learned_->mutex);
  CallPlan plan = plan_of(learned_->choices.at(collective, SizeClass(bytes)).chosen);
  if (plan.algorithm == nullptr) plan.algorithm = &model_.algorithm(collective, bytes);
  return plan;
}

}  // namespace pith
