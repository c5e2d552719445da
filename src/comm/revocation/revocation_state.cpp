#include "comm/revocation/revocation_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/clock.hpp"
#include "core/float_mode.hpp"
#include "core/log.hpp"
#include "startup/start_error.hpp"

namespace pith {

namespace {

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t confirm_ns = 250 * ms;
constexpr std::uint64_t cause_ns = 200 * ms;

void nap() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

}  // namespace

RevocationState::RevocationState(Links& links, const CallsUnderWay& calls,
                                 const CallRecorder& recorder, const CommIdentity& who)
    : links_(links),
      recorder_(recorder),
      who_(who),
      deaths_(links),
      dispute_(links, calls, recorder, who),
      settling_(links, calls, who) {
  links.on_failure(this, [](void* self, const Error& error) {
    static_cast<RevocationState*>(self)->revoke_for_loss(error);
  });
  links.engine().end_calls = [this](Engine::EndedBy what) {
    if (what == Engine::EndedBy::no_memory) return revoke(out_of_memory());
    revoke({Code::remote, fmt::format("rank {} was interrupted while it waited", who_.rank),
            who_.rank});
  };
  heard_work_.context = this;
  heard_work_.run = [](Work& work) {
    auto* self = static_cast<RevocationState*>(work.context);
    self->revoke(self->heard());
  };
  dead_work_.context = this;
  dead_work_.run = [](Work& work) {
    auto* self = static_cast<RevocationState*>(work.context);
    const Error missed = self->links_.state().revoked ? Error() : self->deaths_.missed();
    if (missed) self->revoke_for_loss(missed);
    self->dead_posted_.store(false, std::memory_order_release);
  };
}

// --- on this rank -----------------------------------------------------------------------------

void RevocationState::revoke(const Error& cause) {
  CommState& state = links_.state();
  if (state.revoked) return;
  if (cause.code() == Code::system) links_.engine().open_reserve();  // to report it takes memory
  const Error error = as_of_rank(who_.rank, cause);
  state.revoked = error;
  is_revoked_.store(true, std::memory_order_release);
  log(LogLevel::info, fmt::format("rank {}: communicator revoked: {}", who_.rank, error.message()),
      LogTopic::all);
  links_.revoke(error);
  who_.control->revoke(who_.key, error);
  if (taken_along_ != 0) {
    // The other communicator numbers its ranks differently.
    const std::string why = fmt::format("with another communicator: {}", error.message());
    who_.control->revoke(taken_along_, Error(as_seen_elsewhere(error).code(), why), false);
  }
  settling_.look();
}

// The data path may only see a peer that gave up because of a failure elsewhere. The cause then
// arrives through the control plane.
void RevocationState::revoke_for_loss(const Error& error) {
  if (links_.state().revoked) return;
  const std::uint64_t until = monotonic_ns() + cause_ns;
  const auto is_clear = [&] {
    return error.code() != Code::remote || heard_posted_.load(std::memory_order_acquire) ||
           deaths_.of(error.rank()) || has_ended(error.rank());
  };
  while (!is_clear() && monotonic_ns() < until) nap();
  if (const Error cause = heard()) return revoke(cause);
  const Error death = deaths_.of(error.rank());
  revoke(death ? death : error);
}

void RevocationState::revoke_for_death() {
  const Error cause = heard();
  revoke(cause ? cause : deaths_.first());
}

// Whether the control plane knows why nothing comes from the rank any more.
bool RevocationState::has_ended(int rank) const {
  return rank >= 0 && !who_.control->plane().cause_of(who_.member(rank)).empty();
}

Error RevocationState::refusal() {
  if (Error revoked = now()) return revoked;
  revoke_if_any_died();
  return links_.state().revoked;
}

// With the engine's token.
Error RevocationState::now() {
  const CommState& state = links_.state();
  if (is_revoked_.load(std::memory_order_relaxed) && !state.revoked) links_.engine().progress();
  return state.revoked;
}

Error RevocationState::aborted_here() const {
  return {Code::remote, fmt::format("rank {} aborted the communicator", who_.rank), who_.rank};
}

void RevocationState::abort() {
  const FloatMode mode;
  Engine& engine = links_.engine();
  engine.own();
  revoke(aborted_here());
  engine.progress();
  engine.disown();
}

void RevocationState::leave() {
  CommState& state = links_.state();
  if (state.revoked) return;
  state.revoked = aborted_here();
  is_revoked_.store(true, std::memory_order_release);
}

// Leaves the control plane and the progress thread first: both use this object.
void RevocationState::close(std::uint64_t deadline_ns, const Error& why) {
  Engine& engine = links_.engine();
  who_.control->plane().remove(who_.key, who_.members);
  engine.leave_background();
  engine.own();
  is_revoked_.store(true, std::memory_order_release);
  links_.close(why, deadline_ns);
  engine.disown();
}

// --- from other ranks ---------------------------------------------------------------------------

Error RevocationState::heard() const {
  const std::lock_guard lock(heard_mutex_);
  return heard_;
}

// The thread that drives the engine ends the running calls; if there is none, this thread does.
void RevocationState::hear(const Error& error) {
  {
    const std::lock_guard lock(heard_mutex_);
    heard_ = as_seen_elsewhere(error);
  }
  is_revoked_.store(true, std::memory_order_release);
  if (heard_posted_.exchange(true)) return;
  links_.engine().post(heard_work_);
  drive_if_idle();
}

void RevocationState::hear_of_death(const Error& error) {
  deaths_.add(error);
  log(LogLevel::info,
      fmt::format("rank {}: no call can be made any more: {}", who_.rank, error.message()),
      LogTopic::all);
}

Error RevocationState::refusal_of(std::uint32_t call) const {
  return deaths_.any() && recorder_.is_ahead(call) ? deaths_.first() : Error();
}

void RevocationState::look(std::uint64_t now_ns) {
  if (is_revoked()) {
    drive_if_idle();
    settling_.finish_settled(now_ns);
    return;
  }
  if (const Error overdue = dispute_.overdue(now_ns)) hear(overdue);
  if (deaths_.any()) look_soon_at_dead();
  // What a call has sent may still be on its way after it has returned. If the connection breaks
  // then, the peer waits in its call until this rank accepts another one and sends it again.
  if (links_.hosts().count() > 1) drive_if_idle();
}

void RevocationState::look_soon_at_dead() {
  if (!dead_posted_.exchange(true)) links_.engine().post(dead_work_);
}

void RevocationState::drive_if_idle() {
  Engine& engine = links_.engine();
  if (!engine.try_own()) return;
  const FloatMode mode;
  engine.progress_all();
  engine.disown();
}

// --- queries ----------------------------------------------------------------------------------

Error RevocationState::error() {
  if (!is_revoked()) {
    dispute_.look_for_left_over();
    if (!is_revoked()) return {};
  }
  links_.engine().own();
  Error error = now();
  links_.engine().disown();
  return error ? error : heard();  // not yet seen by the engine
}

std::vector<int> RevocationState::failed() {
  const Error cause = error();
  const std::uint64_t until = monotonic_ns() + confirm_ns;
  while (true) {
    std::vector<int> failed;
    const std::vector<int> dead = who_.control->plane().dead();
    for (int rank = 0; rank < who_.size(); ++rank) {
      if (std::binary_search(dead.begin(), dead.end(), who_.member(rank))) failed.push_back(rank);
    }
    const bool names_one = cause.code() == Code::remote && cause.rank() >= 0;
    if (!names_one || std::binary_search(failed.begin(), failed.end(), cause.rank()) ||
        monotonic_ns() > until) {
      return failed;
    }
    nap();
  }
}

}  // namespace pith
