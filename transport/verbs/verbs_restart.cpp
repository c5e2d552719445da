// How stopped data connections start anew, while the control connection goes on.
//
// Either side stops: it ends all that its hardware does for them, and looks at what has been done.
// In its next turn it begins another epoch, and tells the peer its new ends and which of the peer's
// messages have not arrived; others that the peer was writing have. A peer that learns of a new
// epoch this way does the same. Who has both told and heard connects, and grants again what it
// wants.
#include <fmt/format.h>

#include <cstring>

#include "core/clock.hpp"
#include "transport/verbs/verbs_pair.hpp"

namespace pith {
namespace {

// Hardware ends posted work in microseconds.
constexpr std::uint64_t patience_ns = 1'000'000'000;
// A pair whose data connections break this often while nothing passes is broken.
constexpr int restarts_max = 5;

}  // namespace

// Once this returns, the device neither reads nor writes memory for this peer, frames excepted.
void VerbsPair::stop_data() {
  if (!lanes_.is_open()) return;
  restart_ = Restart::stopped;
  if (++restarts_ > restarts_max) return lose("its data connections break");
  Error failed = lanes_.stop();
  const std::uint64_t deadline = monotonic_ns() + patience_ns;
  while (!failed && !lanes_.is_quiet() && monotonic_ns() < deadline) {
    failed = completions_.gather().error();
  }
  if (lanes_.is_quiet()) return;
  lose(fmt::format("its data connections do not stop{}{}", failed ? ": " : "", failed.message()));
}

const char* VerbsPair::restart_came(const VerbsHead& head, const std::byte* payload) {
  const std::uint32_t next = restart_ == Restart::said ? lanes_.epoch() : lanes_.epoch() + 1;
  VerbsRestart theirs;
  std::memcpy(&theirs, payload, sizeof theirs);
  if (head.epoch != next) return "a new start of another epoch";
  if (theirs.wanted > verbs_grants_max) return "a new start with too many messages";
  // At once, for the frames that follow speak of the new epoch.
  stop_data();
  if (live_ && restart_ == Restart::stopped) say_restart();
  if (!live_ || restart_ != Restart::said) return nullptr;
  restart_ = Restart::none;
  outbox_.landed_except({theirs.transfers, theirs.wanted});
  if (const Error error = lanes_.resume(theirs)) lose(error.message());
  return nullptr;
}

void VerbsPair::say_restart() {
  completions_.take_data_of(static_cast<std::uint32_t>(rank_),
                            [this](const ibv_wc& completion) { act_on_data(completion); });
  if (!live_) return;
  outbox_.halt();
  control_.forget_grants();
  VerbsRestart restart;
  restart.wanted = static_cast<std::uint32_t>(inbox_.halt(restart.transfers));
  VerbsHead head;
  head.kind = VerbsKind::restart;
  head.epoch = lanes_.epoch() + 1;
  if (const Error error = lanes_.begin_epoch(head.epoch, restart)) return lose(error.message());
  control_.say(head, std::as_bytes(std::span(&restart, 1)));
  restart_ = Restart::said;
}

}  // namespace pith
