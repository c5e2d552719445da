// Communicators made from others: split, and shrink to those that live.
#include <algorithm>
#include <utility>

#include "comm/communicator.hpp"
#include "comm/start_error.hpp"
#include "comm/start_log.hpp"
#include "control/members.hpp"
#include "core/clock.hpp"
#include "core/float_mode.hpp"
#include "core/run_together.hpp"

namespace pith {

Expected<std::unique_ptr<Communicator>> Communicator::make_child(const Expected<Settings>& settings,
                                                                 CommKey key,
                                                                 const std::vector<int>& members) {
  if (!settings) {
    control_->plane().remove(key, members);  // nobody need wait for us
    return settings.error();
  }
  std::unique_ptr<Communicator> child(
      new Communicator(*settings, control_, key, members, place_of(members, own_member())));
  child->transport_table_ = transport_table_;
  if (!settings->trace.empty()) child->trace_prefix_ = trace_prefix_;
  // Threads look at a variable of the first one; whoever is cancelled before revokes the child.
  ControlGatherer gatherer(*control_, key, members, named(members), settings->init_timeout,
                           one_process_ ? nullptr : cancellation_);
  StartLog log("descendant", child->rank(), child->size(), LogLevel::debug);
  const Error failed = without_throwing([&] {
    return one_process_ ? child->connect_threads(gatherer, *settings, log)
                        : child->connect(gatherer, *settings, log);
  });
  if (!failed) return child;
  return cancellation_->error() ? as_of_rank(child->rank(), failed) : child->give_up_start(failed);
}

std::vector<int> Communicator::named(const std::vector<int>& members) const {
  return at_their_places(members_, members);
}

GatherResult Communicator::ask(const Question& question) {
  return control_->gather(question.key, question.need, question.participants, question.blob,
                          cancellation_.get(), question.call);
}

Expected<std::unique_ptr<Communicator>> Communicator::split(const Expected<Settings>& settings,
                                                            int color, int key) {
  if (Error revoked = error()) return revoked;
  CollectiveArgs args;
  args.collective = Collective::split;
  const std::uint32_t number = take_number();
  engine_->own();  // calls in the background are recorded by whoever drives it
  recorder_.begin(number, digest_of(args), args);
  engine_->disown();
  Split split(key_, members_, own_member(), rounds_, color, key);
  split.hear(ask(split.question()));
  engine_->own();
  recorder_.end(number, !split.error());
  engine_->disown();
  if (split.error()) return leave_descent(split.key(), split.error());
  if (split.step() == DescentStep::end) return std::unique_ptr<Communicator>();

  Expected<std::unique_ptr<Communicator>> made = make_child(settings, split.key(), split.members());
  if (!made) return end_descent(split.key(), made.error());
  return made;
}

// Before a descendant is made. Where that is because this rank was cancelled, others may make it:
// with us, who are gone then, or without us.
Error Communicator::leave_descent(CommKey child, const Error& error) {
  if (cancellation_->error()) control_->plane().remove(child, members_);
  return error;
}

// We were to be one of the members, and were cancelled: it may be made elsewhere already.
Error Communicator::end_descent(CommKey child, const Error& error) {
  Error cancelled = cancellation_->error();
  if (!cancelled) return error;
  control_->revoke(child, Error(Code::remote, cancelled.message()));
  return cancelled;
}

// Ranks of the job that live and that this one cannot reach. Where a link between two hosts is cut,
// the first pair of ranks to find out revokes the communicator; what the other pairs have not found
// out yet would keep the new one from being made, so it is waited for.
std::vector<int> Communicator::cut_off(std::span<const int> excluded) {
  std::vector<int> peers;
  for (int peer = 0; peer < size(); ++peer) {
    if (std::ranges::find(excluded, peer) == excluded.end()) peers.push_back(peer);
  }
  const auto link_is = [this](int peer, LinkState state) {
    return std::ranges::any_of(transports_,
                               [&](const auto& one) { return one->link_to(peer) == state; });
  };
  const auto member = [this](int peer) { return members_[static_cast<std::size_t>(peer)]; };
  const auto undecided = [&] {
    for (const auto& transport : transports_) transport->look_at_links(monotonic_ns());
    const std::vector<int> dead = control_->plane().dead();
    return std::ranges::any_of(peers, [&](int peer) {
      return link_is(peer, LinkState::doubtful) && !contains(dead, member(peer));
    });
  };
  const FloatMode mode;
  // Those who know of no dead link must not give us up meanwhile.
  const double patience_s =
      timeout_s_ > 0 ? std::min(2 * heartbeat_s_, timeout_s_ / 2) : 2 * heartbeat_s_;
  const std::uint64_t until = monotonic_ns() + static_cast<std::uint64_t>(patience_s * 1e9);
  bool has_turned = false;  // what has come by now may tell of a dead link
  engine_->own();
  engine_->drive_until([&] {
    if (!std::exchange(has_turned, true)) return false;
    return monotonic_ns() > until || cancellation_->error() || !undecided();
  });
  std::vector<int> found;
  for (int peer = 0; peer < size(); ++peer) {
    if (link_is(peer, LinkState::cut_off)) found.push_back(member(peer));
  }
  engine_->disown();
  return found;
}

Expected<std::unique_ptr<Communicator>> Communicator::shrink(const Expected<Settings>& settings,
                                                             std::span<const int> excluded) {
  // Whoever is still in a call may wait for this rank, which makes none any more.
  engine_->own();
  revoke_if_any_died();
  engine_->disown();
  const bool revoked = is_revoked_.load(std::memory_order_acquire);
  const std::uint32_t next_call = revoked ? 0 : next_call_.load(std::memory_order_relaxed);
  Shrink shrink(key_, members_, own_member(), excluded, rounds_, next_call);
  std::vector<int> unreached;
  if (shrink.step() != DescentStep::end) unreached = cut_off(excluded);
  std::unique_ptr<Communicator> child;
  while (shrink.step() != DescentStep::end) {
    if (shrink.step() == DescentStep::make) {
      Expected<std::unique_ptr<Communicator>> made =
          make_child(settings, shrink.key(), shrink.members());
      shrink.made(made.error());
      if (made) child = std::move(*made);
      continue;
    }
    const GatherResult result = ask(shrink.question(recorder_.last_completed(), unreached));
    shrink.hear(result);
    if (result.error && shrink.step() == DescentStep::ask) continue;
    if (result.error) {
      return shrink.was_made() ? end_descent(shrink.key(), result.error)
                               : leave_descent(shrink.key(), result.error);
    }
    if (!shrink.built()) child.reset();
  }
  if (shrink.built() || shrink.left_out()) {
    completed_by_all_ = shrink.completed();
    return_to_compressors(shrink.completed());
  }
  if (!shrink.built()) return shrink.error();
  child->completed_by_all_ = shrink.completed();
  return child;
}

}  // namespace pith
