// How stopped data connections start anew, while the control connection goes on.
//
// Either side stops: it ends all that its hardware does for them, and looks at what has been done.
// In its next turn it begins another epoch, and tells the peer its new ends and which of the peer's
// messages have not arrived; others that the peer was writing have. A peer that learns of a new
// epoch this way does the same. Who has both told and heard connects, and grants again what it
// wants.
#include <cstring>

#include "core/clock.hpp"
#include "transport/verbs/verbs_ranks.hpp"

namespace pith {
namespace {

// Hardware ends posted work in microseconds.
constexpr std::uint64_t patience_ns = 1'000'000'000;
// A pair whose data connections break this often while nothing passes is broken.
constexpr int restarts_max = 5;

}  // namespace

// Once this returns, the device neither reads nor writes memory for this peer, control frames
// excepted.
void VerbsRanks::stop_data(Peer& peer) {
  if (!peer.lanes.is_open()) return;
  peer.restart = Restart::stopped;
  if (++peer.restarts > restarts_max) return lose(peer, "its data connections break");
  const Error error = peer.lanes.stop();
  const std::uint64_t deadline = monotonic_ns() + patience_ns;
  while (!error && peer.live && !peer.lanes.is_quiet() && monotonic_ns() < deadline) gather();
  if (!peer.lanes.is_quiet()) lose(peer, "its data connections do not stop");
}

const char* VerbsRanks::restart_came(Peer& peer, const VerbsHead& head, const std::byte* payload) {
  const std::uint32_t next =
      peer.restart == Restart::said ? peer.lanes.epoch() : peer.lanes.epoch() + 1;
  if (head.epoch != next || peer.has_their_restart) return "a new start of another epoch";
  std::memcpy(&peer.their_restart, payload, sizeof peer.their_restart);
  if (peer.their_restart.wanted > verbs_grants_max) return "a new start with too many messages";
  peer.has_their_restart = true;
  // At once, for the frames that follow speak of the new epoch.
  stop_data(peer);
  if (peer.restart == Restart::stopped && peer.live) say_restart(peer);
  if (peer.restart == Restart::said && peer.live) resume_data(peer);
  return nullptr;
}

// The completions of the old epoch say what has been done.
void VerbsRanks::act_on_data_of(Peer& peer) {
  for (std::size_t i = acted_; i < completions_.size() && peer.live; ++i) {
    const ibv_wc completion = completions_[i];
    if (peer_of(completion) != &peer || !is_data(completion)) continue;
    completions_[i].wr_id = 0;
    act_on_data(peer, completion);
  }
}

void VerbsRanks::say_restart(Peer& peer) {
  act_on_data_of(peer);
  peer.outbox.halt();
  peer.control.forget_grants();
  VerbsRestart restart;
  restart.wanted = static_cast<std::uint32_t>(peer.inbox.halt(restart.transfers));
  VerbsHead head;
  head.kind = VerbsKind::restart;
  head.epoch = peer.lanes.epoch() + 1;
  if (const Error error = peer.lanes.begin_epoch(head.epoch, restart)) {
    return lose(peer, error.message());
  }
  peer.control.say(head, std::as_bytes(std::span(&restart, 1)));
  peer.restart = Restart::said;
}

void VerbsRanks::resume_data(Peer& peer) {
  peer.has_their_restart = false;
  peer.restart = Restart::none;
  peer.outbox.landed_except({peer.their_restart.transfers, peer.their_restart.wanted});
  if (const Error error = peer.lanes.resume(peer.their_restart)) lose(peer, error.message());
}

}  // namespace pith
