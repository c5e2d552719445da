#include "comm/children/child_communicators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/children/grow_agreement.hpp"
#include "comm/communicator.hpp"
#include "control/members.hpp"
#include "core/clock.hpp"
#include "core/float_mode.hpp"
#include "core/run_together.hpp"
#include "startup/connect.hpp"
#include "startup/rendezvous.hpp"
#include "startup/start_error.hpp"
#include "startup/start_log.hpp"

namespace pith {

namespace {

// Ranks that know of no dead link wait meanwhile, and must not report this one as unresponsive.
double patience_of(const Settings& settings) {
  const double two_beats = 2 * settings.heartbeat;
  return settings.timeout > 0 ? std::min(two_beats, settings.timeout / 2) : two_beats;
}

void revoke(Communicator& communicator, const Error& error) {
  communicator.engine().own();
  communicator.revocation().revoke(error);
  communicator.engine().disown();
}

}  // namespace

ChildCommunicators::ChildCommunicators(Communicator& parent, const Settings& settings)
    : parent_(parent),
      patience_s_(patience_of(settings)),
      cancellation_(std::make_shared<Cancellation>(parent.rank())) {}

ChildCommunicators::Made ChildCommunicators::make(const Expected<Settings>& settings, CommKey key,
                                                  const std::vector<int>& members) {
  const CommIdentity& who = parent_.identity();
  if (!settings) {
    who.control->plane().remove(key, members);  // so that no rank waits for this one
    return settings.error();
  }
  const bool threads = parent_.links().is_one_process();
  auto child = std::make_unique<Communicator>(
      *settings, CommIdentity{who.control, key, members, place_of(members, who.own_member())},
      parent_.links().transport_table());
  child->set_record_paths(parent_.record_paths());
  child->links().model().set_known(parent_.links().model().known());
  // Ranks that are threads wait on a variable of the first one, without a cancellation. A rank that
  // is cancelled before that revokes the child.
  ControlGatherer gatherer(*who.control, key, members, at_their_places(who.members, members),
                           settings->init_timeout, threads ? nullptr : cancellation_);
  StartLog log("child communicator", child->rank(), child->size(), LogLevel::debug);
  const Error failed = without_throwing([&] {
    return threads ? connect_threads(*child, gatherer, *settings, log)
                   : connect(*child, gatherer, *settings, log);
  });
  if (!failed) return child;
  // The other members wait for this rank's connections, so it tells them.
  const Error error = as_of_rank(child->rank(), failed);
  if (error.code() != Code::remote && !cancellation_->error()) {
    who.control->revoke(key, as_seen_elsewhere(error));
  }
  return error;
}

GatherResult ChildCommunicators::ask(const Question& question) {
  return parent_.identity().control->gather(question.key, question.need, question.participants,
                                            question.blob, cancellation_.get(), question.call);
}

ChildCommunicators::Made ChildCommunicators::split(const Expected<Settings>& settings, int color,
                                                   int key) {
  if (Error revoked = parent_.error()) return revoked;
  const CommIdentity& who = parent_.identity();
  CallJournal& journal = parent_.calls().journal();
  const std::uint32_t number = parent_.calls().numbers().take();
  journal.begin_split(number);
  Split split(who.key, who.members, who.own_member(), rounds_, color, key);
  split.hear(ask(split.question()));
  journal.end_split(number, !split.error());
  if (split.error()) return leave(split.key(), split.error());
  if (split.step() == ChildStep::end) return std::unique_ptr<Communicator>();

  Made made = make(settings, split.key(), split.members());
  if (!made) return end(split.key(), made.error());
  return made;
}

// The first member that is known to have died; empty: none.
Error ChildCommunicators::death() const {
  const CommIdentity& who = parent_.identity();
  const ControlPlane& plane = who.control->plane();
  for (const int member : plane.dead()) {
    const int rank = place_of(who.members, member);
    if (rank < 0) continue;
    return {Code::remote, fmt::format("rank {}: {}", rank, plane.cause_of(member)), rank};
  }
  return {};
}

// The new communicator is a job of its own: the ranks that join have no part in this one. Once all
// members mean the same, they meet as if each had been started with the id. The members hear from
// this communicator of what keeps one of them away: a death, or the end of its call.
ChildCommunicators::Made ChildCommunicators::grow(Expected<Settings> settings, int ranks,
                                                  const UniqueId* id,
                                                  std::optional<int> timeout_s) {
  const CommIdentity& who = parent_.identity();
  // The ranks that join wait at the root, in whichever process that is.
  const auto give_up = [](const UniqueId* at, const Error& error) {
    if (at) Rendezvous::cannot_join(*at, error);
    return error;
  };
  // Others may wait for a rank that was cancelled, or have made the new communicator already.
  const auto fail = [this](const Error& error) {
    if (const Error cancelled = cancellation_->error()) revoke(parent_, cancelled);
    return error;
  };
  if (Error revoked = parent_.error()) return give_up(id, revoked);
  const std::uint32_t number = parent_.calls().numbers().take();
  Grow grow(who.key, who.members, who.own_member(), rounds_, who.control->secret(), number,
            {ranks, id, settings.error()});
  const GatherResult answer = ask(grow.question());
  grow.hear(answer);
  if (!answer.error) parent_.calls().journal().count_growth(number);
  if (grow.error()) return fail(give_up(grow.id() ? grow.id() : id, grow.error()));

  settings->timeout = timeout_s ? *timeout_s : who.control->timeout_s();
  const auto obstacle = [this, &who] {
    Error died = death();
    return died ? died : who.control->plane().revocation_of(who.key);
  };
  Made made = make_communicator(*settings, *grow.id(), parent_.rank(), ranks, cancellation_,
                                parent_.links().transport_table(), obstacle);
  if (!made) return fail(made.error());
  return made;
}

// Called before a child is made. If this rank was cancelled, the others may still make the child,
// without this rank or with it as a member that has left.
Error ChildCommunicators::leave(CommKey child, const Error& error) {
  const CommIdentity& who = parent_.identity();
  if (cancellation_->error()) who.control->plane().remove(child, who.members);
  return error;
}

// This rank was to be a member and was cancelled. Other ranks may have made the child already, so
// it is revoked.
Error ChildCommunicators::end(CommKey child, const Error& error) {
  Error cancelled = cancellation_->error();
  if (!cancelled) return error;
  parent_.identity().control->revoke(child, Error(Code::remote, cancelled.message()));
  return cancelled;
}

// Live ranks of the job that this rank cannot reach. If a link between two hosts is cut, the first
// pair of ranks to notice revokes the communicator. Dead links that other pairs have not noticed
// yet would keep the new communicator from being made, so doubtful links are waited for.
std::vector<int> ChildCommunicators::cut_off(std::span<const int> excluded) {
  Links& links = parent_.links();
  const CommIdentity& who = parent_.identity();
  std::vector<int> peers;
  for (int peer = 0; peer < who.size(); ++peer) {
    if (std::ranges::find(excluded, peer) == excluded.end()) peers.push_back(peer);
  }
  const auto undecided = [&] {
    links.transports().look_at_links(monotonic_ns());
    const std::vector<int> dead = who.control->plane().dead();
    return std::ranges::any_of(peers, [&](int peer) {
      return links.transports().is_link(peer, LinkState::doubtful) &&
             !contains(dead, who.member(peer));
    });
  };
  const FloatMode mode;
  const std::uint64_t until = monotonic_ns() + static_cast<std::uint64_t>(patience_s_ * 1e9);
  bool has_turned = false;  // messages that have arrived may tell of a dead link
  Engine& engine = parent_.engine();
  engine.own();
  engine.drive_until([&] {
    if (!std::exchange(has_turned, true)) return false;
    return monotonic_ns() > until || cancellation_->error() || !undecided();
  });
  std::vector<int> found;
  for (int peer = 0; peer < who.size(); ++peer) {
    if (links.transports().is_link(peer, LinkState::cut_off)) found.push_back(who.member(peer));
  }
  engine.disown();
  return found;
}

ChildCommunicators::Made ChildCommunicators::shrink(const Expected<Settings>& settings,
                                                    std::span<const int> excluded) {
  // This rank makes no more calls here. Ranks still in a call may wait for it, so a death revokes
  // the parent.
  parent_.engine().own();
  parent_.revocation().revoke_if_any_died();
  parent_.engine().disown();
  const CommIdentity& who = parent_.identity();
  const std::uint32_t next_call = parent_.is_revoked() ? 0 : parent_.calls().numbers().next();
  Shrink shrink(who.key, who.members, who.own_member(), excluded, rounds_, next_call);
  std::vector<int> unreached;
  if (shrink.step() != ChildStep::end) unreached = cut_off(excluded);
  std::unique_ptr<Communicator> child;
  while (shrink.step() != ChildStep::end) {
    if (shrink.step() == ChildStep::make) {
      Made made = make(settings, shrink.key(), shrink.members());
      shrink.made(made.error());
      if (made) child = std::move(*made);
      continue;
    }
    const GatherResult result =
        ask(shrink.question(parent_.calls().journal().last_completed(), unreached));
    shrink.hear(result);
    if (result.error && shrink.step() == ChildStep::ask) continue;
    if (result.error) {
      return shrink.was_made() ? end(shrink.key(), result.error)
                               : leave(shrink.key(), result.error);
    }
    if (!shrink.built()) child.reset();
  }
  if (shrink.built() || shrink.left_out()) {
    completed_by_all_ = shrink.completed();
    if (parent_.is_revoked()) parent_.drain();
    parent_.compressors().give_back(shrink.completed());
  }
  if (!shrink.built()) return shrink.error();
  child->children().completed_by_all_ = shrink.completed();
  return child;
}

}  // namespace pith
