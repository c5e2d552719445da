#include "comm/revocation/settling.hpp"

#include <chrono>
#include <thread>

#include "comm/background_call.hpp"
#include "core/clock.hpp"

namespace pith {

namespace {

// A rank that was stopped in the middle of a copy cannot report that it is done with our buffers.
constexpr std::uint64_t settle_ns = 700'000'000;

// Distinct from the rounds of splits and shrinks.
constexpr std::uint32_t settle_round = 0xffffffff;

}  // namespace

void Settling::look_revoked() {
  const int running = calls_.active.load(std::memory_order_relaxed) -
                      calls_.not_begun.load(std::memory_order_relaxed);
  if (calls_.inside || running > 0) return;
  if (begun_.exchange(true)) return;
  since_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  if (!links_.context().views) {
    all_settled_.store(true, std::memory_order_release);
    return;
  }
  who_.control->gather({who_.key, settle_round}, ControlPlane::Need::live, who_.members, "",
                       [this](const GatherResult&) {
                         all_settled_.store(true, std::memory_order_release);
                         finish_settled(monotonic_ns());
                       });
}

bool Settling::settled(std::uint64_t now_ns) const {
  if (all_settled_.load(std::memory_order_acquire)) return true;
  const std::uint64_t since = since_ns_.load(std::memory_order_relaxed);
  return since != 0 && now_ns > since + settle_ns;  // now_ns may be older than since
}

void Settling::wait() {
  const std::uint64_t until = monotonic_ns() + settle_ns;
  while (!settled(monotonic_ns()) && monotonic_ns() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Settling::finish(BackgroundCall& call, const Error& error) {
  const bool waits = error && peers_may_touch() && !settled(monotonic_ns());
  if (!waits) return call.conclude(error);
  const std::lock_guard lock(mutex_);
  unsettled_.emplace_back(&call, error);
}

void Settling::finish_settled(std::uint64_t now_ns) {
  if (settled(now_ns)) finish_all();
}

void Settling::finish_all() {
  std::vector<std::pair<BackgroundCall*, Error>> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(unsettled_);
  }
  for (const auto& [call, error] : ended) call->conclude(error);
}

}  // namespace pith
