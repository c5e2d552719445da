#include "nccl/compression/pointer_cycle.hpp"

#include <algorithm>

namespace pith::nccl {

namespace {

// A cycle that lasted this long is no repetition inside a longer cycle: when it ends, the history
// before it is useless.
bool is_proven(std::size_t calls, std::size_t period) {
  return calls >= std::max<std::size_t>(16 * period, 256);
}

}  // namespace

void PointerCycle::remember(const Call& call) {
  equal_.resize(history_.size() + 1, 0);
  for (std::size_t p = 1; p < equal_.size(); ++p) {
    equal_[p] = call == history_[history_.size() - p] ? equal_[p] + 1 : 0;
  }
  history_.push_back(call);
  if (history_.size() > most_calls) history_.pop_front();
}

// The distance over which calls have repeated for longest, if for at least one full period more.
// For a repetition inside a longer cycle the longer distance wins, since it holds through the end.
std::size_t PointerCycle::find_period() const {
  std::size_t best = 0;
  for (std::size_t p = 1; p < equal_.size(); ++p) {
    if (equal_[p] > 0 && (best == 0 || equal_[p] >= equal_[best])) best = p;
  }
  return best != 0 && equal_[best] >= best ? best : 0;
}

std::optional<std::size_t> PointerCycle::rotation(const Cycle& old, const std::vector<Call>& now) {
  const std::size_t n = now.size();
  if (old.calls.size() != n) return std::nullopt;
  std::optional<std::size_t> found;
  for (std::size_t r = 0; r < n; ++r) {
    bool alike = true;
    for (std::size_t i = 0; i < n && alike; ++i) {
      alike = old.calls[(r + i) % n].same_shape(now[i]);
    }
    if (!alike) continue;
    if (found) return std::nullopt;  // ambiguous sizes
    found = r;
  }
  if (!found) return std::nullopt;
  for (std::size_t i = 0; i < n; ++i) {
    if (!(old.calls[(*found + i) % n] == now[i])) return std::nullopt;
  }
  return found;
}

// After a disturbance the distance across it has matched for a step longer than the step's own
// period and would hide that for ever. So the period of a waiting cycle counts once the whole cycle
// has been seen again.
std::size_t PointerCycle::returning() const {
  for (const Cycle& old : waiting_) {
    const std::size_t n = old.calls.size();
    if (n >= equal_.size() || equal_[n] < n) continue;
    const std::vector<Call> now(history_.end() - static_cast<std::ptrdiff_t>(n), history_.end());
    if (rotation(old, now)) return n;
  }
  return 0;
}

// Starts a cycle with the last `period` calls; the newest one gets place 0.
void PointerCycle::begin(std::size_t period) {
  std::vector<Call> calls(period);
  for (std::size_t i = 0; i < period; ++i) {
    // The newest first, then what came one period before the next ones.
    calls[i] = history_[history_.size() - 1 - (i == 0 ? 0 : period - i)];
  }
  active_ = true;
  lasted_ = 1;
  at_ = 1 % period;
  for (std::size_t w = 0; w < waiting_.size(); ++w) {
    const std::optional<std::size_t> r = rotation(waiting_[w], calls);
    if (!r) continue;
    cycle_ = std::move(waiting_[w]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(w));
    const auto by = static_cast<std::ptrdiff_t>(*r);
    std::rotate(cycle_.calls.begin(), cycle_.calls.begin() + by, cycle_.calls.end());
    std::rotate(cycle_.places.begin(), cycle_.places.begin() + by, cycle_.places.end());
    return;
  }
  cycle_.calls = std::move(calls);
  cycle_.places.clear();
  for (std::size_t i = 0; i < period; ++i) cycle_.places.push_back(next_place_++);
}

void PointerCycle::drop(const Cycle& cycle) {
  dropped_.insert(dropped_.end(), cycle.places.begin(), cycle.places.end());
}

void PointerCycle::park() {
  if (!active_) return;
  active_ = false;
  if (is_proven(lasted_, cycle_.calls.size())) {
    history_.erase(history_.begin(), history_.end() - 1);
    equal_.clear();
  }
  waiting_.push_back(std::move(cycle_));
  cycle_ = Cycle();
  if (waiting_.size() <= most_waiting) return;
  drop(waiting_.front());
  waiting_.pop_front();
}

PointerCycle::Seen PointerCycle::next(const Call& call) {
  remember(call);
  if (active_ && cycle_.calls[at_] == call) {
    const Seen seen{cycle_.calls.size(), cycle_.places[at_]};
    at_ = (at_ + 1) % cycle_.calls.size();
    ++lasted_;
    return seen;
  }
  park();
  std::size_t period = find_period();
  if (period == 0) period = returning();
  streak_ = period != 0 && period == period_ ? streak_ + 1 : (period != 0 ? 1 : 0);
  period_ = period;
  if (period == 0 || streak_ < 2 * period) return {period, std::nullopt};
  begin(period);
  streak_ = 0;
  period_ = 0;
  return {period, cycle_.places[0]};
}

std::vector<std::uint32_t> PointerCycle::take_dropped() {
  std::vector<std::uint32_t> places;
  places.swap(dropped_);
  return places;
}

std::vector<std::uint32_t> PointerCycle::waiting() const {
  std::vector<std::uint32_t> places;
  for (const Cycle& cycle : waiting_) {
    places.insert(places.end(), cycle.places.begin(), cycle.places.end());
  }
  return places;
}

}  // namespace pith::nccl
