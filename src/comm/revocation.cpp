// The end of a communicator: who revokes it, who hears of it, and when its calls may return.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "collectives/compressed.hpp"
#include "comm/communicator.hpp"
#include "comm/start_error.hpp"
#include "comm/stream_calls.hpp"
#include "core/clock.hpp"
#include "core/float_mode.hpp"
#include "core/log.hpp"

namespace pith {

namespace {

constexpr std::uint64_t ms = 1'000'000;
// What the ranks disagree about is found out in a few messages; then what is known here must do.
constexpr std::uint64_t dispute_ns = 500 * ms;
// A rank that has stopped in the middle of a copy cannot say that it has let go of our buffers.
constexpr std::uint64_t settle_ns = 700 * ms;
constexpr std::uint64_t confirm_ns = 250 * ms;
constexpr std::uint64_t cause_ns = 200 * ms;
// What a call that has ended for its caller still does.
constexpr std::uint64_t moment_ns = 100 * ms;

// Apart from the rounds of splits and shrinks.
constexpr std::uint32_t settle_round = 0xffffffff;

void nap() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

}  // namespace

// What the data path sees of a failure may be a rank that gave up because of it. The cause is on
// its way through the control plane.
void Communicator::revoke_for_loss(const Error& error) {
  if (state_.revoked) return;
  const std::uint64_t until = monotonic_ns() + cause_ns;
  const auto is_clear = [&] {
    return error.code() != Code::remote || heard_posted_.load(std::memory_order_acquire) ||
           death_of(error.rank()) || has_ended(error.rank());
  };
  while (!is_clear() && monotonic_ns() < until) nap();
  if (const Error cause = heard()) return revoke(cause);
  const Error death = death_of(error.rank());
  revoke(death ? death : error);
}

Error Communicator::heard() {
  const std::lock_guard lock(hearsay_mutex_);
  return heard_;
}

// Here, by whoever drives the engine; all other ranks hear of it by the control plane.
void Communicator::revoke(const Error& cause) {
  if (state_.revoked) return;
  if (cause.code() == Code::system) engine_->open_reserve();  // there may be no memory to tell
  const Error error = as_of_rank(rank_, cause);
  state_.revoked = error;
  is_revoked_.store(true, std::memory_order_release);
  log(LogLevel::info, fmt::format("rank {}: communicator revoked: {}", rank(), error.message()),
      LogTopic::all);
  engine_->mailbox().quiesce(state_, error);
  for (const auto& transport : transports_) transport->quiesce(state_, error);
  if (control_) control_->revoke(key_, error);
  if (control_ && taken_along_ != 0) {
    // Ranks have other numbers there.
    const std::string why = fmt::format("with another communicator: {}", error.message());
    control_->revoke(taken_along_, Error(as_seen_elsewhere(error).code(), why), false);
  }
  settle();
}

// From elsewhere. Whoever drives the engine ends the running calls; if nobody does, this thread.
void Communicator::on_revoked(const Error& error) {
  {
    const std::lock_guard lock(hearsay_mutex_);
    heard_ = as_seen_elsewhere(error);
  }
  is_revoked_.store(true, std::memory_order_release);
  if (heard_posted_.exchange(true)) return;
  heard_work_.run = [](Work& work) {
    auto* self = static_cast<Communicator*>(work.context);
    self->revoke(self->heard());
  };
  heard_work_.context = this;
  engine_->post(heard_work_);
  drive_if_idle();
}

void Communicator::drive_if_idle() {
  if (!engine_->try_own()) return;
  const FloatMode mode;
  engine_->progress();
  engine_->disown();
}

// What revoked the communicator, if anything did. Precondition: the token is held.
Error Communicator::revoked_now() {
  if (is_revoked_.load(std::memory_order_relaxed) && !state_.revoked) engine_->progress();
  return state_.revoked;
}

Error Communicator::aborted_here() const {
  return {Code::remote, fmt::format("rank {} aborted the communicator", rank()), rank()};
}

Error Communicator::refuses_calls() {
  if (Error revoked = revoked_now()) return revoked;
  revoke_if_any_died();
  return state_.revoked;
}

void Communicator::abort() {
  const FloatMode mode;
  engine_->own();
  revoke(aborted_here());
  engine_->progress();
  engine_->disown();
}

bool Communicator::runs() const {
  return blocking_.load(std::memory_order_acquire) || active_.load(std::memory_order_acquire) > 0;
}

// Who waits for a stream hears of a call's end before it has ended here, and at the end of the
// process nobody else drives the engine.
bool Communicator::ends_soon(std::uint64_t until_ns) {
  while (runs()) {
    if (monotonic_ns() > until_ns) return false;
    drive_if_idle();
    sched_yield();
  }
  return true;
}

bool Communicator::leave() {
  if (!ends_soon(monotonic_ns() + moment_ns)) return false;
  engine_->own();
  const bool idle = !runs() && !(streams_ && streams_->may_be_replayed());
  // Calls that a group has collected, or that another thread begins just now.
  if (idle && !state_.revoked) {
    state_.revoked = aborted_here();
    is_revoked_.store(true, std::memory_order_release);
  }
  engine_->disown();
  return idle;
}

Error Communicator::error() {
  if (!is_revoked_.load(std::memory_order_acquire)) {
    look_for_left_over();
    if (!is_revoked_.load(std::memory_order_acquire)) return {};
  }
  engine_->own();
  Error error = revoked_now();
  engine_->disown();
  return error ? error : heard();  // heard of, and not yet at the engine
}

// Nobody may look at what goes now. The control thread does not look at us any more.
void Communicator::part(const Error& why, std::uint64_t deadline_ns) {
  if (std::exchange(parted_, true)) return;
  control_->plane().remove(key_, members_);
  engine_->leave_background();
  engine_->own();
  if (!state_.revoked) state_.revoked = why;
  is_revoked_.store(true, std::memory_order_release);
  for (const auto& transport : transports_) transport->quiesce(state_, state_.revoked);
  for (const auto& transport : transports_) transport->close(deadline_ns);
  engine_->scheduler().run_ready();
  engine_->disown();
}

bool Communicator::leave_with_process(std::uint64_t deadline_ns) {
  if (!ends_soon(std::min(deadline_ns, monotonic_ns() + moment_ns))) return false;
  const FloatMode mode;
  part(Error(Code::invalid_usage, "this process is ending, and has left the communicator"),
       deadline_ns);
  return true;
}

std::vector<int> Communicator::failed() {
  const Error cause = error();
  const std::uint64_t until = monotonic_ns() + confirm_ns;
  while (true) {
    std::vector<int> failed;
    const std::vector<int> dead = control_ ? control_->plane().dead() : std::vector<int>();
    for (std::size_t r = 0; r < members_.size(); ++r) {
      if (std::binary_search(dead.begin(), dead.end(), members_[r])) {
        failed.push_back(static_cast<int>(r));
      }
    }
    const bool names_one = cause.code() == Code::remote && cause.rank() >= 0;
    if (!names_one || std::binary_search(failed.begin(), failed.end(), cause.rank()) ||
        monotonic_ns() > until) {
      return failed;
    }
    nap();
  }
}

// --- disagreement -----------------------------------------------------------------------------

void Communicator::dispute(int peer, std::uint32_t call) {
  {
    const std::lock_guard lock(dispute_mutex_);
    if (dispute_.error) return;
    dispute_.error = Mailbox::another_call(peer, call);
  }
  if (const std::optional<CallNote> note = recorder_.find(call)) control_->suspect(key_, *note);
}

// Messages of calls that have ended here show a peer that was in another one. Precondition: the
// token is held.
Error Communicator::check_left_over(std::uint32_t call) {
  const Mailbox::LeftOver left = engine_->mailbox().find_left_over(state_.id, call);
  if (left.peer < 0) [[likely]]
    return {};
  dispute(left.peer, left.call);
  const std::uint64_t until = monotonic_ns() + 2 * dispute_ns;
  engine_->drive_until([&] { return state_.revoked || monotonic_ns() > until; });
  return state_.revoked;
}

// A peer's message may come after the last call has ended here. A later one that has its number may
// not have begun yet.
void Communicator::look_for_left_over() {
  if (active_.load(std::memory_order_acquire) > 0 || !engine_->try_own()) return;
  const FloatMode mode;
  engine_->progress_all();
  const std::uint32_t last = call_number(recorder_.last_completed());
  Mailbox::LeftOver left;
  // A blocking call lends the token to others while it waits: its messages are no left-overs.
  if (!inside_) left = engine_->mailbox().find_left_over(state_.id, last);
  engine_->disown();
  if (left.peer >= 0) dispute(left.peer, left.call);
}

// Nobody could tell more within the time.
void Communicator::look_at_dispute(std::uint64_t now_ns) {
  Error error;
  {
    const std::lock_guard lock(dispute_mutex_);
    if (!dispute_.error) return;
    if (dispute_.since_ns == 0) dispute_.since_ns = now_ns;
    if (now_ns - dispute_.since_ns < dispute_ns) return;
    error = dispute_.error;
  }
  on_revoked(error);
}

// --- the last touch ---------------------------------------------------------------------------
//
// Peers that reach our memory may be in the middle of a copy when the communicator is revoked, so
// our calls return only when all of them have ended their own: a gather over those that live. One
// that has been stopped does not answer, so there is a limit.

// Precondition: the token is held.
void Communicator::settle() {
  const int running =
      active_.load(std::memory_order_relaxed) - (streams_ ? streams_->not_begun() : 0);
  if (!state_.revoked || inside_ || running > 0) return;
  if (settling_.exchange(true)) return;
  settling_since_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  if (!context_.views || !control_) {
    all_settled_.store(true, std::memory_order_release);
    return;
  }
  control_->gather({key_, settle_round}, ControlPlane::Need::live, members_, "",
                   [this](const GatherResult&) {
                     all_settled_.store(true, std::memory_order_release);
                     finish_settled(monotonic_ns());
                   });
}

bool Communicator::settled(std::uint64_t now_ns) const {
  if (all_settled_.load(std::memory_order_acquire)) return true;
  const std::uint64_t since = settling_since_ns_.load(std::memory_order_relaxed);
  return since != 0 && now_ns > since + settle_ns;  // now_ns may be older than since
}

void Communicator::wait_until_settled() {
  const std::uint64_t until = monotonic_ns() + settle_ns;
  while (!settled(monotonic_ns()) && monotonic_ns() < until) nap();
}

// A background call has ended. Its owner may free what belongs to it once it knows.
void Communicator::finish(BackgroundCall& call, const Error& error) {
  const bool waits = error && peers_may_touch() && !settled(monotonic_ns());
  if (!waits) return finish_now(call, error);
  const std::lock_guard lock(unsettled_mutex_);
  unsettled_.emplace_back(&call, error);
}

void Communicator::finish_now(BackgroundCall& call, const Error& error) {
  for (const CompressedTensor& tensor : call.args_.tensors) tensor.compressor->release();
  call.group_.finish_one(error);
}

void Communicator::finish_settled(std::uint64_t now_ns) {
  if (!settled(now_ns)) return;
  std::vector<std::pair<BackgroundCall*, Error>> ended;
  {
    const std::lock_guard lock(unsettled_mutex_);
    ended.swap(unsettled_);
  }
  for (const auto& [call, error] : ended) finish_now(*call, error);
}

// --- calls that get no further ----------------------------------------------------------------

std::optional<Stall> Communicator::look(std::uint64_t now_ns) {
  recorder_.tell_time(now_ns);
  if (is_revoked_.load(std::memory_order_acquire)) {
    drive_if_idle();
    finish_settled(now_ns);
    return std::nullopt;
  }
  look_at_dispute(now_ns);
  if (any_died_.load(std::memory_order_acquire)) look_soon_at_dead();
  const std::optional<CallNote> call = recorder_.oldest_unfinished();
  const std::uint32_t moves = engine_->moves();
  look_at_what_lasts(call, now_ns);
  if (!call || call->number != watched_.call || moves != watched_.moves || !watched_.any) {
    watched_ = {call.has_value(), call ? call->number : 0, moves, now_ns};
    waits_for_.store(-1, std::memory_order_relaxed);  // of another call, or for another message
    return std::nullopt;
  }
  Stall stall;
  stall.call = *call;
  stall.seconds = static_cast<double>(now_ns - watched_.since_ns) / 1e9;
  stall.waits_for = waits_for_.load(std::memory_order_relaxed);
  return stall;
}

// Also where other calls move on: one of several links may be dead.
void Communicator::look_at_what_lasts(const std::optional<CallNote>& call, std::uint64_t now_ns) {
  if (!call || !lasting_.any || call->number != lasting_.call) {
    lasting_ = {call.has_value(), call ? call->number : 0, now_ns};
  }
  if (call && now_ns - lasting_.since_ns > 150 * ms) look_who_is_waited_for();
}

// Known to the engine only; the answer is there at the next look.
void Communicator::look_who_is_waited_for() {
  if (look_posted_.exchange(true)) return;
  look_work_.context = this;
  look_work_.run = [](Work& work) {
    auto* self = static_cast<Communicator*>(work.context);
    CallRecorder::AwaitedList awaited(self->recorder_);
    self->engine_->mailbox().for_each_waiting([&](int from, const Tag& tag) {
      awaited.add({from, tag, false});
    });
    for (const auto& transport : self->transports_) {
      transport->for_each_sending([&](const Send& send) {
        awaited.add({send.peer, send.header.tag(), true});
      });
    }
    self->recorder_.tell_awaited(awaited.some());
    self->waits_for_.store(awaited.waits_for(), std::memory_order_relaxed);
    // Whether whoever it is can be reached at all.
    for (const auto& transport : self->transports_) transport->look_at_links(monotonic_ns());
    self->look_posted_.store(false, std::memory_order_release);
  };
  engine_->post(look_work_);
}

void Communicator::on_stalled(const Stall& stall) {
  // Not known where it waits for a kernel.
  std::string whom = stall.waits_for < 0 ? "" : fmt::format(" for rank {}", stall.waits_for);
  if (!stall.absent.empty()) whom = " for " + stall.absent;
  std::string text = fmt::format("rank {} has waited {:.0f} s{} in {}", rank(), stall.seconds, whom,
                                 title_of(stall.call));
  text += "; its last calls:";
  constexpr std::size_t told_ended = 4;  // jobs have many ranks
  const std::vector<std::string> lines =
      recorder_.lines(windows_.head_bytes(), model_.tuning().chunk_bytes, told_ended);
  for (const std::string& line : lines) text += "\n  " + line;
  log(LogLevel::warn, text);
}

}  // namespace pith
