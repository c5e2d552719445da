#include "comm/revocation/dispute.hpp"

#include "core/call_number.hpp"
#include "core/clock.hpp"
#include "core/float_mode.hpp"
#include "core/mailbox/hand_over.hpp"

namespace pith {

namespace {

// The control plane finds the disagreement in a few messages. Later the error known here is used.
constexpr std::uint64_t patience_ns = 500'000'000;

}  // namespace

Dispute::Dispute(Links& links, const CallsUnderWay& calls, const CallRecorder& recorder,
                 const CommIdentity& who)
    : links_(links), calls_(calls), recorder_(recorder), who_(who) {
  links_.engine().mailbox().on_dispute = [this](int peer, std::uint32_t call) {
    begin(peer, call);
  };
}

void Dispute::begin(int peer, std::uint32_t call) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = another_call(peer, call);
  }
  if (const std::optional<CallNote> note = recorder_.find(call)) {
    who_.control->suspect(who_.key, *note);
  }
}

Error Dispute::check_left_over(std::uint32_t call) {
  Engine& engine = links_.engine();
  if (engine.mailbox().flow().backlog() == 0) [[likely]]
    return {};
  const CommState& state = links_.state();
  const Mailbox::LeftOver left = engine.mailbox().find_left_over(state.id, call);
  if (left.peer < 0) return {};
  begin(left.peer, left.call);
  const std::uint64_t until = monotonic_ns() + 2 * patience_ns;
  engine.drive_until([&] { return state.revoked || monotonic_ns() > until; });
  return state.revoked;
}

// If a background call is active, a call with the message's number may not have begun yet.
void Dispute::look_for_left_over() {
  Engine& engine = links_.engine();
  if (calls_.active.load(std::memory_order_acquire) > 0 || !engine.try_own()) return;
  const FloatMode mode;
  engine.progress_all();
  const std::uint32_t last = call_number(recorder_.last_completed());
  Mailbox::LeftOver left;
  // A blocking call lends the token to others while it waits; its own messages are not left over.
  if (!calls_.inside) left = engine.mailbox().find_left_over(links_.state().id, last);
  engine.disown();
  if (left.peer >= 0) begin(left.peer, left.call);
}

Error Dispute::overdue(std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (!error_) return {};
  if (since_ns_ == 0) since_ns_ = now_ns;
  return now_ns - since_ns_ < patience_ns ? Error() : error_;
}

}  // namespace pith
