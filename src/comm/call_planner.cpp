#include "comm/call_planner.hpp"

#include "core/log.hpp"

namespace pith {

namespace {

// A program that makes fewer calls of a kind than these has only the choice of the start.
constexpr std::uint32_t calls_before = 32;
// One call in so many is made by a rival; after a start or a change, one in fewer. What is new is
// known after that many calls, or is not going to be.
constexpr std::uint32_t seldom = 32;
constexpr std::uint32_t often = 4;
constexpr std::uint32_t new_until = 512;
// From this size on, the two readings of a clock are nothing.
constexpr std::size_t always_timed_bytes = std::size_t{64} << 10;

std::size_t bytes_of(const CollectiveArgs& args) { return args.count * size_of(args.type); }

std::uint32_t spacing(const Choices::Cell& cell, std::uint32_t count) {
  return cell.is_new || count < new_until ? often : seldom;
}

}  // namespace

void CallPlanner::begin() {
  const std::lock_guard lock(mutex_);
  start_ = choices_ = model_.start();
}

void CallPlanner::adopt(std::string_view saved) {
  const Expected<Choices> choices = Choices::restore(start_, saved, model_.ranks());
  if (!choices) return log(LogLevel::warn, choices.error().message());
  const std::lock_guard lock(mutex_);
  choices_ = *choices;
}

const Algorithm& CallPlanner::chosen_in(const Choices::Cell& cell, Collective collective,
                                        std::size_t bytes) const {
  return cell.chosen == Choices::by_model ? model_.algorithm(collective, bytes)
                                          : Choices::algorithm_at(cell.chosen);
}

void CallPlanner::plan(CollectiveArgs& args) {
  const std::size_t bytes = bytes_of(args);
  const SizeClass size(bytes);
  const Choices::Cell& cell = choices_.at(args.collective, size);
  args.plan = {&chosen_in(cell, args.collective, bytes), false};
  if (!model_.learns() || bytes == 0) return;
  const std::uint32_t count = counts_[static_cast<std::size_t>(args.collective)][size.index()]++;
  const std::uint32_t every = spacing(cell, count);
  args.plan.is_timed = bytes >= always_timed_bytes || count % every == every / 2;
  if (cell.rival_count == 0 || count < calls_before || count % every != 0) return;
  const Choices::Place rival = cell.rivals[count / every % cell.rival_count];
  args.plan = {&Choices::algorithm_at(rival), true};
}

const Algorithm& CallPlanner::chosen(Collective collective, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return chosen_in(choices_.at(collective, SizeClass(bytes)), collective, bytes);
}

}  // namespace pith
