#include "comm/revocation/deaths.hpp"

#include <algorithm>
#include <utility>

#include "core/clock.hpp"

namespace pith {

namespace {

// A dead rank that has sent nothing for this long sends nothing any more. It is reported only at
// the second look, since the thread that drives the transports may not have run before the first.
constexpr std::uint64_t missed_ns = 600'000'000;

}  // namespace

// Calls that wait for the rank learn of it from its connections, after all that it had sent.
void Deaths::add(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    deaths_.push_back({error});
  }
  any_.store(true, std::memory_order_release);
}

Error Deaths::missed() {
  Error missed;
  const std::lock_guard lock(mutex_);
  const std::uint64_t now_ns = monotonic_ns();
  for (Death& death : deaths_) {
    if (is_late(death, now_ns)) missed = death.error;
  }
  return missed;
}

bool Deaths::is_late(Death& death, std::uint64_t now_ns) {
  const int rank = death.error.rank();
  const std::uint64_t heard = links_.route_to(rank).transport->heard_from(rank);
  const bool moves = std::exchange(death.heard, heard) != heard;
  const bool waited = is_waited_for(rank);
  if (moves || death.since_ns == 0 || !waited) {
    death.since_ns = waited ? now_ns : 0;
    death.is_late = false;
    return false;
  }
  return now_ns - death.since_ns > missed_ns && std::exchange(death.is_late, true);
}

bool Deaths::is_waited_for(int rank) {
  bool waited = links_.engine().mailbox().awaited(rank);
  links_.route_to(rank).transport->for_each_sending(
      [&](const Send& send) { waited |= send.peer == rank; });
  return waited;
}

Error Deaths::first() const {
  const std::lock_guard lock(mutex_);
  return deaths_.empty() ? Error() : deaths_.front().error;
}

Error Deaths::of(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find(deaths_, rank, [](const Death& d) { return d.error.rank(); });
  return found == deaths_.end() ? Error() : found->error;
}

}  // namespace pith
