#include "comm/call_planner.hpp"

#include <bit>

#include "core/log.hpp"

namespace pith {

namespace {

// A program that makes fewer calls of a kind than these has only the choice of the start.
constexpr std::uint32_t calls_before = 32;
// For that many calls after the start, or while a cell is new, one call in so many is made by a
// rival and another one is timed; later one in more is timed.
constexpr std::uint32_t new_until = 512;
constexpr std::uint32_t often = 4;
constexpr std::uint32_t seldom = 32;
// From this size on, the two readings of a clock are nothing.
constexpr std::size_t always_timed_bytes = std::size_t{64} << 10;

// Which of `one_in` kinds the call with this count is, all alike often, but in no rhythm of theirs:
// roots and sizes may have one. `one_in`: a power of two, for a division costs a tenth of a call.
constexpr std::uint32_t kind_of(std::uint32_t count, std::uint32_t one_in) {
  constexpr std::uint32_t golden = 0x9E3779B1;  // D. Knuth, The Art of Computer Programming, 6.4
  return (count * golden) >> (32 - std::bit_width(one_in - 1));
}

std::size_t bytes_of(const CollectiveArgs& args) { return args.count * size_of(args.type); }

CallPlan chosen_in(const Choices::Cell& cell, const Model& model, Collective collective,
                   std::size_t bytes) {
  if (cell.chosen == Choices::by_model) return {&model.algorithm(collective, bytes)};
  return {&Choices::algorithm_of(cell.chosen), Choices::variant_of(cell.chosen)};
}

}  // namespace

void CallPlanner::begin() {
  if (!model_.learns()) return;
  learned_ = std::make_unique<Learned>();
  learned_->start = learned_->choices = model_.start();
}

void CallPlanner::adopt(std::string_view saved) {
  if (!learned_) return;
  const Expected<Choices> choices = Choices::restore(learned_->start, saved, model_.ranks());
  if (!choices) return log(LogLevel::warn, choices.error().message());
  const std::lock_guard lock(learned_->mutex);
  learned_->choices = *choices;
}

void CallPlanner::Learned::plan(const Model& model, CollectiveArgs& args) {
  const std::size_t bytes = bytes_of(args);
  const SizeClass size(bytes);
  const Choices::Cell& cell = choices.at(args.collective, size);
  const std::uint32_t count = counts[static_cast<std::size_t>(args.collective)][size.index()]++;
  const bool is_new = cell.is_new || count < new_until;
  const bool may_try = is_new && cell.rival_count != 0 && count >= calls_before;
  if (may_try && kind_of(count, often) == 0) {
    const Choices::Plan rival = cell.rivals[count / often % cell.rival_count];
    args.plan = {&Choices::algorithm_of(rival), Choices::variant_of(rival), true};
  } else {
    const bool is_sample =
        is_new ? kind_of(count, often) == often / 2 : kind_of(count, seldom) == 0;
    args.plan = chosen_in(cell, model, args.collective, bytes);
    args.plan.is_timed = (is_sample || bytes >= always_timed_bytes) && bytes != 0;
  }
  if (args.plan.variant != Variant::usual) args.tuning = varied(args.tuning, args.plan.variant);
}

CallPlan CallPlanner::chosen(Collective collective, std::size_t bytes) const {
  if (!learned_) return {&model_.algorithm(collective, bytes)};
  const std::lock_guard lock(learned_->mutex);
  return chosen_in(learned_->choices.at(collective, SizeClass(bytes)), model_, collective, bytes);
}

}  // namespace pith
