// Communicators made from others: split, and shrink to those that live.
#include <fmt/format.h>

#include <algorithm>

#include "comm/communicator.hpp"
#include "comm/members.hpp"
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

Expected<std::unique_ptr<Communicator>> Communicator::make_child(CommKey key,
                                                                 const std::vector<int>& members) {
  const Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  std::unique_ptr<Communicator> child(
      new Communicator(*settings, control_, key, members, place_of(members, own_member())));
  ControlGatherer gatherer(*control_, key, members, named(members), settings->init_timeout);
  Error error = one_process_ ? child->connect_threads(gatherer, *settings)
                             : child->connect(gatherer, *settings);
  if (error) return error;
  return child;
}

std::vector<int> Communicator::named(const std::vector<int>& members) const {
  std::vector<int> named = members_;
  for (int& member : named) {
    if (!contains(members, member)) member = -1;
  }
  return named;
}

Expected<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  if (Error revoked = error()) return revoked;
  CollectiveArgs args;
  args.collective = Collective::split;
  const std::uint32_t number = take_number();
  recorder_.begin(number, digest_of(args), args);
  const std::uint32_t round = split_base + splits_++;
  const GatherResult result = control_->gather({key_, round}, ControlPlane::Need::all, members_,
                                               Packer().value(color).value(key).take());
  recorder_.end(number, !result.error);
  if (result.error) return result.error;
  if (color == no_color) return std::unique_ptr<Communicator>();

  std::vector<std::pair<int, int>> ordered;  // key, rank here
  for (int r = 0; r < size(); ++r) {
    Unpacker blob(result.blobs.at(members_[static_cast<std::size_t>(r)]));
    if (blob.value<int>() == color) ordered.emplace_back(blob.value<int>(), r);
  }
  std::sort(ordered.begin(), ordered.end());
  std::vector<int> members;
  for (const auto& [place, r] : ordered) members.push_back(members_[static_cast<std::size_t>(r)]);
  const CommKey child = mix(mix(mix(key_, split_mark), round), static_cast<std::uint64_t>(color));
  return make_child(child, members);
}

// All that live and take part contribute the last call they have completed.
Expected<Communicator::Survivors> Communicator::agree_on_survivors(
    const std::vector<int>& candidates) {
  const GatherResult result =
      control_->gather({key_, shrink_base + shrink_rounds_++}, ControlPlane::Need::live,
                       named(candidates), Packer().value(recorder_.last_completed()).take());
  if (result.error) return result.error;
  Survivors survivors;
  survivors.completed = recorder_.last_completed();
  for (const int member : candidates) {
    const auto blob = result.blobs.find(member);
    if (blob == result.blobs.end() || contains(result.dead, member)) continue;
    survivors.members.push_back(member);
    survivors.completed =
        std::min(survivors.completed, Unpacker(blob->second).value<std::uint32_t>());
  }
  return survivors;
}

// The same answer everywhere, whatever each of them knows by now.
Expected<Communicator::Outcome> Communicator::agree_on_outcome(const std::vector<int>& members,
                                                               bool here) {
  const GatherResult result =
      control_->gather({key_, shrink_base + shrink_rounds_++}, ControlPlane::Need::live,
                       named(members), here ? "built" : "");
  if (result.error) return result.error;
  Outcome outcome = Outcome::built;
  for (const int member : members) {
    const auto blob = result.blobs.find(member);
    if (blob == result.blobs.end() || contains(result.dead, member)) return Outcome::died;
    if (blob->second.empty()) outcome = Outcome::failed;
  }
  return outcome;
}

Expected<std::unique_ptr<Communicator>> Communicator::shrink(std::span<const int> excluded) {
  std::vector<int> candidates;
  for (int r = 0; r < size(); ++r) {
    if (std::find(excluded.begin(), excluded.end(), r) == excluded.end()) {
      candidates.push_back(members_[static_cast<std::size_t>(r)]);
    }
  }
  // A death in between makes all try again, without the dead: at most so often.
  for (int attempt = 0; attempt < size(); ++attempt) {
    const Expected<Survivors> survivors = agree_on_survivors(candidates);
    if (!survivors) return survivors.error();
    completed_by_all_ = survivors->completed;
    const CommKey key = mix(mix(key_, shrink_mark), shrink_rounds_);
    Expected<std::unique_ptr<Communicator>> child = make_child(key, survivors->members);
    const Expected<Outcome> outcome =
        agree_on_outcome(survivors->members, static_cast<bool>(child));
    if (!outcome) return outcome.error();
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
