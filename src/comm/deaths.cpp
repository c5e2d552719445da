// Ranks whose process or host is gone. A death alone revokes nothing: what the dead had sent is
// delivered, a running call fails where it waits for more or has to send to them, and calls that
// begin afterwards fail at once.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/communicator.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"

namespace pith {

namespace {

// Of a dead rank from which nothing has come for so long nothing will. Then it is looked once more,
// after a turn of the transports: who drives them may not have run meanwhile.
constexpr std::uint64_t missed_ns = 600'000'000;

}  // namespace

// Its connections tell those who wait for it, after all that it had sent.
void Communicator::on_dead(const Error& error) {
  {
    const std::lock_guard lock(hearsay_mutex_);
    deaths_.push_back({error});
  }
  any_died_.store(true, std::memory_order_release);
  log(LogLevel::info,
      fmt::format("rank {}: no call can be made any more: {}", rank(), error.message()),
      LogTopic::all);
}

// Where no connection tells: a rank may have been given up though its process has only stopped.
void Communicator::look_at_dead() {
  if (state_.revoked) return;
  Error missed;
  {
    const std::lock_guard lock(hearsay_mutex_);
    const std::uint64_t now_ns = monotonic_ns();
    for (Death& death : deaths_) {
      const int rank = death.error.rank();
      const std::uint64_t heard = route_to(rank).transport->heard_from(rank);
      const bool moves = std::exchange(death.heard, heard) != heard;
      const bool waited = is_waited_for(rank);
      if (moves || death.since_ns == 0 || !waited) {
        death.since_ns = waited ? now_ns : 0;
        death.is_late = false;
      } else if (now_ns - death.since_ns > missed_ns) {
        if (std::exchange(death.is_late, true)) missed = death.error;
      }
    }
  }
  if (missed) revoke_for_loss(missed);
}

bool Communicator::is_waited_for(int rank) const {
  bool waited = engine_->mailbox().awaited(rank);
  route_to(rank).transport->for_each_sending(
      [&](const Send& send) { waited |= send.peer == rank; });
  return waited;
}

void Communicator::look_soon_at_dead() {
  if (dead_posted_.exchange(true)) return;
  dead_work_.context = this;
  dead_work_.run = [](Work& work) {
    auto* self = static_cast<Communicator*>(work.context);
    self->look_at_dead();
    self->dead_posted_.store(false, std::memory_order_release);
  };
  engine_->post(dead_work_);
}

Error Communicator::first_death() {
  const std::lock_guard lock(hearsay_mutex_);
  return deaths_.empty() ? Error() : deaths_.front().error;
}

Error Communicator::death_of(int rank) {
  const std::lock_guard lock(hearsay_mutex_);
  const auto found =
      std::ranges::find(deaths_, rank, [](const Death& d) { return d.error.rank(); });
  return found == deaths_.end() ? Error() : found->error;
}

bool Communicator::has_ended(int rank) const {
  if (!control_ || rank < 0) return false;
  return !control_->plane().cause_of(members_[static_cast<std::size_t>(rank)]).empty();
}

void Communicator::revoke_if_any_died() {
  if (!any_died_.load(std::memory_order_relaxed) || state_.revoked) [[likely]]
    return;
  const Error cause = heard();
  revoke(cause ? cause : first_death());
}

Error Communicator::refusal_of(std::uint32_t number) {
  const bool refused = any_died_.load(std::memory_order_acquire) && recorder_.is_ahead(number);
  return refused ? first_death() : Error();
}

Error Communicator::async_error() {
  if (Error revoked = error()) return revoked;
  return runs() ? Error() : first_death();
}

}  // namespace pith
