#include "control/epoch_gate.hpp"

#include <utility>

#include "core/call_number.hpp"
#include "core/process_fence.hpp"

namespace pith {

// --- the thread that issues calls ---------------------------------------------------------------

EpochGate::Passage EpochGate::pass(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  if (!stops(number)) return Passage::open;  // cancelled meanwhile
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

bool EpochGate::promise(std::uint32_t first, EpochParameters proposed) {
  const std::lock_guard lock(mutex_);
  const bool can = stop_before(first, std::move(proposed));
  ++(can ? counts_.promised : counts_.refused);
  return can;
}

// The call with the number that is read here may have looked before the stop was set, so it must
// come before the change. Later ones see the stop: the fence came before their thread stored that
// number as taken, else it would have been read here as taken.
bool EpochGate::stop_before(std::uint32_t first, EpochParameters proposed) {
  const bool is_number = first != 0 && !is_captured(first);
  if (state_ != State::idle || !is_number) return false;
  auto kept = std::make_shared<const EpochParameters>(std::move(proposed));
  stop_.store(first, std::memory_order_relaxed);
  if (!fence_all_threads() || !is_later(first, next())) {
    become_idle();
    return false;
  }
  state_ = State::open;
  proposed_ = std::move(kept);
  return true;
}

void EpochGate::commit(std::uint32_t version) {
  const std::lock_guard lock(mutex_);
  if (!is_open(version)) return;
  state_ = State::committed;
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
