// Which calls of a collective and size are made by a rival of the choice, and which are timed:
// found by counting the calls, so that all ranks find the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "model/call_time.hpp"
#include "model/choices.hpp"

namespace pith {

enum class TurnOf : std::uint8_t { choice, timed_choice, rival };

struct Turn {
  TurnOf of = TurnOf::choice;
  Choices::Plan rival = Choices::by_model;
  std::uint8_t place = 0;  // in its run
};

// Calls of a rival until it is judged, without its first, which allocates what later ones use.
constexpr std::uint32_t calls_to_judge = 4;

// The place of a turn among `one_in` calls, a power of two: a division would cost a tenth of a
// call. It changes from one turn to the next, since roots and sizes of calls may have a rhythm.
constexpr std::uint32_t place_of(std::uint32_t turn, std::uint32_t one_in) {
  constexpr std::uint32_t golden = 0x9E3779B1;  // D. Knuth, The Art of Computer Programming, 6.4
  return (turn * golden) >> (32 - std::bit_width(one_in - 1));
}

// One call in so many is timed, with some next to it.
constexpr std::uint32_t timed_one_in(WhoseTime whose, const CallRun& run) {
  if (run.is_one_time()) return 16 * run.calls;   // and tell once
  return whose == WhoseTime::slowest ? 512 : 64;  // to tell takes as long as a short call
}

// Rivals take turns, the first of them first, each as often as the others: a few times early on,
// since short calls may be over by thousands before ranks agree on what to make of them, and later
// while it is agreed that they are tried, but not for ever: the rank that judges may see no time of
// these calls. Then one call in eight is a rival's, or in two.
// `run`: a rival's turn, or that of a choice that is timed. Where rivals are tried often, as the
// choice is a guess, long calls take turns by themselves, so that one is found soon.
class Turns {
 public:
  // `since`: how many calls had been made when the cell was agreed on.
  Turns(const Choices::Cell& cell, WhoseTime whose, const CallRun& run, std::uint32_t since = 0)
      : cell_(cell),
        since_(since),
        turn_(are_single(cell, run) ? CallRun() : run),
        timed_one_in_(timed_one_in(whose, run)),
        run_(run.is_one_time() ? run.calls : 2),
        shift_(std::bit_width(turn_.calls) - 1) {}

  static bool are_single(const Choices::Cell& cell, const CallRun& run) {
    return run.calls == 1 || (run.times > 1 && cell.trials == Choices::Trials::often);
  }

  // `count`: how many calls came before.
  Turn at(std::uint32_t count) const {
    if (!tries(count)) {
      const std::uint32_t first = first_timed(count / timed_one_in_);
      if (count - first >= run_) return {};
      return {.of = TurnOf::timed_choice, .place = static_cast<std::uint8_t>(count - first)};
    }
    const auto place_in_run = static_cast<std::uint8_t>(counted(count) % (1U << shift_));
    const std::uint32_t runs = counted(count) >> shift_;
    const std::uint32_t turn = runs / one_in();
    const std::uint32_t place = place_of(turn, one_in());
    if (runs % one_in() == (place ^ (one_in() / 2))) {
      return {.of = TurnOf::timed_choice, .place = place_in_run};
    }
    if (runs % one_in() != place || (is_early() && turn < turns_before())) return {};
    const std::uint32_t its_turn = is_early() ? turn - turns_before() : turn;
    return {TurnOf::rival, cell_.rivals[its_turn % cell_.rival_count], place_in_run};
  }

  // From this call on another one than the choice may be made, or one timed.
  std::uint32_t next(std::uint32_t count) const {
    if (tries(count)) return count;
    const std::uint32_t first = first_timed(count / timed_one_in_);
    if (count < first + run_) return std::max(count, first);
    return first_timed(count / timed_one_in_ + 1);
  }

 private:
  std::uint32_t first_timed(std::uint32_t turn) const {
    return turn * timed_one_in_ + (place_of(turn, timed_one_in_) & ~(run_ - 1));
  }
  bool is_early() const { return cell_.trials == Choices::Trials::early; }
  std::uint32_t one_in() const { return cell_.trials == Choices::Trials::often ? 2 : 8; }
  // Turns begin with the first call, or since the cell was agreed on.
  std::uint32_t counted(std::uint32_t count) const { return is_early() ? count : count - since_; }
  // A program that makes fewer calls of a kind than these turns has only the choice of the start.
  std::uint32_t turns_before() const { return shift_ == 0 ? 4 : 1; }
  std::uint32_t turns_for(std::uint32_t times) const {
    return (times + turn_.times - 1) / turn_.times;
  }
  bool tries(std::uint32_t count) const {
    constexpr std::uint32_t most_times = 24;  // of a rival
    const std::uint32_t turn = (counted(count) >> shift_) / one_in();
    const std::uint32_t early_end =
        turns_before() + turns_for(calls_to_judge + 1) * cell_.rival_count;
    if (is_early()) return turn < early_end && cell_.rival_count != 0;
    return turn < turns_for(most_times) * cell_.rival_count;
  }

  const Choices::Cell& cell_;
  const std::uint32_t since_;
  const CallRun turn_;  // of a rival
  const std::uint32_t timed_one_in_;
  const std::uint32_t run_;  // calls next to each other that are timed, where no rivals are tried
  const int shift_;          // of counts of calls, to those of runs
};

}  // namespace pith
