#include "control/epoch_gate.hpp"

#include <utility>

#include "core/call_number.hpp"
#include "core/process_fence.hpp"

namespace pith {

namespace {

constexpr int most_tries = 4;

}  // namespace

// --- the thread that issues calls ---------------------------------------------------------------

EpochGate::Passage EpochGate::pass(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  if (!stops(number)) return Passage::open;  // cancelled meanwhile, or the stop has moved on
  if (state_ == State::barred) return Passage::barred;
  if (state_ == State::open) {
    if (!std::exchange(waits_, true)) ++counts_.waited;
    return Passage::waits;
  }
  current_ = std::move(proposed_);
  become_idle();
  return Passage::open;
}

Error EpochGate::barred() const {
  const std::lock_guard lock(mutex_);
  return why_barred_;
}

// --- the control thread -------------------------------------------------------------------------

bool EpochGate::is_idle() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::idle;
}

std::optional<std::uint32_t> EpochGate::promise(std::uint32_t margin, EpochParameters proposed) {
  const std::lock_guard lock(mutex_);
  std::optional<std::uint32_t> first;
  if (state_ == State::idle) {
    auto kept = std::make_shared<const EpochParameters>(std::move(proposed));
    first = stop_after(margin);
    if (first) {
      state_ = State::open;
      proposed_ = std::move(kept);
    }
  }
  ++(first ? counts_.promised : counts_.refused);
  return first;
}

// The call with the number that is read last here may have looked before the stop was set, so it
// must come before the stop. Later ones see the stop: the fence came before their thread stored
// that number as taken, else it would have been read here as taken. Where the stop was too near,
// a later one is tried; nothing has been promised yet.
std::optional<std::uint32_t> EpochGate::stop_after(std::uint32_t margin) {
  for (int tries = 0; tries < most_tries; ++tries, margin *= 2) {
    const std::uint32_t number = number_after(next(), margin);
    stop_.store(number, std::memory_order_relaxed);
    if (!fence_all_threads()) break;
    if (is_later(number, next())) return number;
  }
  stop_.store(0, std::memory_order_relaxed);
  return std::nullopt;
}

// The stop moves to a later call without a fence. The thread that issues calls has not taken the
// promised number, so it has not come to `first`. At the promised number it reads the new stop, or
// still the old one, which brings it to pass(): under the lock it sees the new one. Either way its
// later loads, too, give the new one, as those of one thread do not go back.
void EpochGate::commit(std::uint32_t version, std::uint32_t first) {
  const std::lock_guard lock(mutex_);
  if (!is_open(version)) return;
  state_ = State::committed;
  stop_.store(first, std::memory_order_relaxed);
  ++counts_.committed;
}

void EpochGate::cancel(std::uint32_t version) {
  const std::lock_guard lock(mutex_);
  if (!is_open(version)) return;
  become_idle();
  ++counts_.cancelled;
}

void EpochGate::bar(std::uint32_t version, const Error& why) {
  const std::lock_guard lock(mutex_);
  if (!is_open(version)) return;
  state_ = State::barred;
  why_barred_ = why;
}

bool EpochGate::is_open(std::uint32_t version) const {
  return state_ == State::open && proposed_->version == version;
}

void EpochGate::become_idle() {
  state_ = State::idle;
  proposed_.reset();
  waits_ = false;
  stop_.store(0, std::memory_order_relaxed);
}

EpochGate::Counts EpochGate::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace pith
