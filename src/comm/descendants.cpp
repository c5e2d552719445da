// Communicators made from others: split, and shrink to those that live.
#include <fmt/format.h>

#include <algorithm>

#include "comm/communicator.hpp"
#include "comm/members.hpp"
#include "comm/start_log.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

// Rounds of agreement of one communicator; shrinks count apart from splits, for the ranks that
// survive have not all begun the same splits.
// Both apart from those in which the communicator itself was made.
constexpr std::uint32_t split_base = 0x10000000;
constexpr std::uint32_t shrink_base = 0x40000000;
constexpr std::uint64_t split_mark = 0x73706c6974;
constexpr std::uint64_t shrink_mark = 0x736872696e6b;

}  // namespace

Expected<std::unique_ptr<Communicator>> Communicator::make_child(const Expected<Settings>& settings,
                                                                 CommKey key,
                                                                 const std::vector<int>& members) {
  if (!settings) {
    control_->plane().remove(key, members);  // nobody need wait for us
    return settings.error();
  }
  std::unique_ptr<Communicator> child(
      new Communicator(*settings, control_, key, members, place_of(members, own_member())));
  if (!settings->trace.empty()) child->trace_prefix_ = trace_prefix_;
  // Threads look at a variable of the first one; whoever is cancelled before revokes the child.
  ControlGatherer gatherer(*control_, key, members, named(members), settings->init_timeout,
                           one_process_ ? nullptr : cancellation_);
  StartLog log("descendant", child->rank(), child->size(), LogLevel::debug);
  Error error = one_process_ ? child->connect_threads(gatherer, *settings, log)
                             : child->connect(gatherer, *settings, log);
  if (error) return error;
  return child;
}

std::vector<int> Communicator::named(const std::vector<int>& members) const {
  return at_their_places(members_, members);
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
  const std::uint32_t round = split_base + splits_++;
  const GatherResult result =
      control_->gather({key_, round}, ControlPlane::Need::all, members_,
                       Packer().value(color).value(key).take(), cancellation_.get());
  engine_->own();
  recorder_.end(number, !result.error);
  engine_->disown();
  const CommKey child = mix(mix(mix(key_, split_mark), round), static_cast<std::uint64_t>(color));
  if (result.error) return leave_descent(child, result.error);
  if (color == no_color) return std::unique_ptr<Communicator>();

  const std::vector<int> members = members_of_color(result, members_, color);
  if (!contains(members, own_member())) return Error(Code::internal, "a split without its caller");
  Expected<std::unique_ptr<Communicator>> made = make_child(settings, child, members);
  if (!made) return end_descent(child, made.error());
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
  const Error cancelled = cancellation_->error();
  if (!cancelled) return error;
  control_->revoke(child, Error(Code::remote, cancelled.message()));
  return cancelled;
}

// All that live and take part contribute the last call they have completed.
Expected<Survivors> Communicator::agree_on_survivors(const std::vector<int>& candidates) {
  const GatherResult result = control_->gather(
      {key_, shrink_base + shrink_rounds_++}, ControlPlane::Need::live, named(candidates),
      Packer().value(recorder_.last_completed()).take(), cancellation_.get());
  if (result.error) return result.error;
  return survivors_of(result, candidates, recorder_.last_completed());
}

// The same answer everywhere, whatever each of them knows by now.
Expected<Outcome> Communicator::agree_on_outcome(const std::vector<int>& members, bool here) {
  const GatherResult result =
      control_->gather({key_, shrink_base + shrink_rounds_++}, ControlPlane::Need::live,
                       named(members), here ? "built" : "", cancellation_.get());
  if (result.error) return result.error;
  return outcome_of(result, members);
}

Expected<std::unique_ptr<Communicator>> Communicator::shrink(const Expected<Settings>& settings,
                                                             std::span<const int> excluded) {
  std::vector<int> candidates;
  for (int r = 0; r < size(); ++r) {
    if (std::find(excluded.begin(), excluded.end(), r) == excluded.end()) {
      candidates.push_back(members_[static_cast<std::size_t>(r)]);
    }
  }
  // A death in between makes all try again, without the dead: at most so often.
  for (int attempt = 0; attempt < size(); ++attempt) {
    const Expected<Survivors> survivors = agree_on_survivors(candidates);
    const CommKey key = mix(mix(key_, shrink_mark), shrink_rounds_);
    if (!survivors) return leave_descent(key, survivors.error());
    completed_by_all_ = survivors->completed;
    Expected<std::unique_ptr<Communicator>> child = make_child(settings, key, survivors->members);
    const Expected<Outcome> outcome =
        agree_on_outcome(survivors->members, static_cast<bool>(child));
    if (!outcome) return end_descent(key, outcome.error());
    if (*outcome == Outcome::built) {
      (*child)->completed_by_all_ = survivors->completed;
      return_to_compressors(survivors->completed);
      return child;
    }
    if (*outcome == Outcome::failed) {
      return child ? Error(Code::remote, "another rank could not make the new communicator")
                   : child.error();
    }
  }
  return Error(Code::remote, "no communicator of survivors could be made: ranks went on dying");
}

}  // namespace pith
