#include "comm/call_planner.hpp"

#include "core/log.hpp"

namespace pith {

namespace {

// A program that makes fewer calls of a kind than these has only the choice of the start.
constexpr std::uint32_t calls_before = 32;
// For that many calls after the start, or while a cell is new, one call in so many is made by a
// rival and another one is timed; later one in more is timed. Powers of two: a division costs a
// tenth of a call.
constexpr std::uint32_t new_until = 512;
constexpr std::uint32_t often = 4;
constexpr std::uint32_t seldom = 32;
// From this size on, the two readings of a clock are nothing.
constexpr std::size_t always_timed_bytes = std::size_t{64} << 10;

std::size_t bytes_of(const CollectiveArgs& args) { return args.count * size_of(args.type); }

}  // namespace

void CallPlanner::begin() {
  const std::lock_guard lock(mutex_);
  learns_ = model_.learns();
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

void CallPlanner::plan_by_choices(CollectiveArgs& args) {
  const std::size_t bytes = bytes_of(args);
  const SizeClass size(bytes);
  const Choices::Cell& cell = choices_.at(args.collective, size);
  const std::uint32_t count = counts_[static_cast<std::size_t>(args.collective)][size.index()]++;
  const bool is_new = cell.is_new || count < new_until;
  if (is_new && cell.rival_count != 0 && count >= calls_before && count % often == 0) {
    const Choices::Place rival = cell.rivals[count / often % cell.rival_count];
    args.plan = {&Choices::algorithm_at(rival), true};
    return;
  }
  const bool is_sample = is_new ? count % often == often / 2 : count % seldom == 0;
  const bool is_timed = (is_sample || bytes >= always_timed_bytes) && bytes != 0;
  args.plan = {&chosen_in(cell, args.collective, bytes), is_timed};
}

const Algorithm& CallPlanner::chosen(Collective collective, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return chosen_in(choices_.at(collective, SizeClass(bytes)), collective, bytes);
}

}  // namespace pith
