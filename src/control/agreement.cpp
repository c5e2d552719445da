#include "control/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "control/members.hpp"

namespace pith {

namespace {

// Waiting ranks are told who is missing this long before their log line is due, and of changes at
// this interval.
constexpr double missing_lead_s = 0.5;
constexpr std::uint64_t missing_again_ns = 300'000'000;

GatherResult not_known(const Error& why) { return {why, {}, {}, false}; }

GatherResult too_late() {
  return not_known({Code::remote, "this has been decided so long ago that nobody knows how"});
}

// A participant that another one does not name is not waited for: it may have stopped. That they
// disagree about the participants shows in their blobs.
void drop_unnamed(std::vector<int>& participants, const std::vector<int>& named) {
  for (std::size_t i = 0; i < participants.size(); ++i) {
    if (i >= named.size() || named[i] != participants[i]) participants[i] = -1;
  }
}

}  // namespace

// --- participants -----------------------------------------------------------------------------

void Agreement::gather(Contribution own, Done done, CallNote call) {
  const GatherKey key = own.key;
  Pending pending{std::move(own), std::move(done), context_.now_ns, std::move(call)};
  // It may have been decided without this rank.
  if (const std::string* known = results_.find(key)) return deliver(pending, *known);
  if (results_.was_dropped(key)) return end(pending, too_late());
  if (context_.membership.is_dead(context_.options.rank))
    return end(pending, not_known(unreachable_self()));
  tree_.send_up(contribution_message((pending_[key] = std::move(pending)).own));
}

void Agreement::contribute_again() {
  for (const auto& [key, pending] : pending_) tree_.send_up(contribution_message(pending.own));
  if (tree_.is_root()) return;
  for (const auto& [key, collecting] : collecting_) {
    for (const auto& [rank, blob] : collecting.blobs) {
      tree_.send_up(
          contribution_message({key, collecting.need, collecting.participants, rank, blob}));
    }
  }
}

void Agreement::send_results() {
  for (const GatherKey& key : results_.keys()) tree_.send_up(*results_.find(key));
}

void Agreement::deliver(Pending& pending, const std::string& packed) {
  Unpacker in = body_of(packed);
  unpack_key(in);
  if (std::optional<GatherResult> result = unpack_result(in)) end(pending, std::move(*result));
}

void Agreement::end(Pending& pending, GatherResult result) {
  watchers_.call_later(pending.own.key.comm, [done = std::move(pending.done),
                                              result = std::move(result)] { done(result); });
}

Agreement::AllPending::iterator Agreement::refuse(AllPending::iterator entry, const Error& error) {
  end(entry->second, not_known(error));
  return pending_.erase(entry);
}

void Agreement::refuse_all(const Error& error) {
  for (auto entry = pending_.begin(); entry != pending_.end();) entry = refuse(entry, error);
}

std::optional<CallNote> Agreement::find_call(CommKey comm, std::uint32_t number) const {
  for (const auto& [key, pending] : pending_) {
    if (key.comm == comm && number != 0 && pending.call.number == number) return pending.call;
  }
  return std::nullopt;
}

bool Agreement::others_wait_without(int rank, double seconds) const {
  const auto is_without = [&](const std::vector<int>& participants, std::uint64_t since_ns) {
    return context_.since(since_ns) >= seconds && !contains(participants, rank);
  };
  return std::ranges::any_of(pending_,
                             [&](const auto& entry) {
                               return is_without(entry.second.own.participants,
                                                 entry.second.since_ns);
                             }) ||
         std::ranges::any_of(collecting_, [&](const auto& entry) {
           return is_without(entry.second.participants, entry.second.since_ns);
         });
}

void Agreement::hear_result(Unpacker& in, const std::string& whole, int from) {
  const GatherKey key = unpack_key(in);
  if (is_decided(key) || revocation_.is_over(key.comm) || !unpack_result(in)) return;
  results_.keep(key, whole);
  collecting_.erase(key);
  // To the parent too: a new root may then learn the result before it decides itself.
  tree_.spread(whole, from);
  const auto found = pending_.find(key);
  if (found == pending_.end()) return;
  deliver(found->second, whole);
  pending_.erase(found);
}

void Agreement::hear_missing(Unpacker& in, const std::string& whole) {
  tree_.send_down(whole);
  const auto found = pending_.find(unpack_key(in));
  const std::vector<int> missing = in.numbers();
  if (in.whole() && found != pending_.end()) found->second.missing = missing;
}

// --- the root, and ranks on the way to it -------------------------------------------------------

void Agreement::hear_contribution(Unpacker& in, const std::string& whole, int from) {
  const Contribution heard = unpack_contribution(in);
  // Already decided; the result was lost on its way back.
  if (const std::string* known = results_.find(heard.key)) {
    if (from != context_.options.rank) tree_.send(from, *known);
    return;
  }
  if (results_.was_dropped(heard.key)) {
    return tree_.send(from, result_message(heard.key, too_late()));
  }
  if (!in.whole() || revocation_.tell_if_over(heard.key.comm, from)) return;
  Collecting& collecting = collecting_[heard.key];
  if (collecting.participants.empty()) {
    collecting.need = heard.need;
    collecting.participants = heard.participants;
    collecting.since_ns = context_.now_ns;
  }
  if (heard.need == GatherNeed::live) drop_unnamed(collecting.participants, heard.participants);
  collecting.blobs[heard.rank] = heard.blob;
  if (!tree_.is_root()) tree_.send_up(whole);
}

// decide() may erase the entry.
void Agreement::decide_all() {
  if (!tree_.is_root() || collecting_.empty() || !roll_.is_complete()) return;
  for (auto entry = collecting_.begin(); entry != collecting_.end();) {
    const auto next = std::next(entry);
    decide(entry->first, entry->second);
    entry = next;
  }
}

bool Agreement::may_contribute(const GatherKey& key, int rank) const {
  const bool here = context_.membership.lives(rank) || context_.membership.is_unsure(rank);
  return here && !revocation_.has_released(key.comm, rank);
}

std::vector<int> Agreement::missing_in(const GatherKey& key, const Collecting& collecting) const {
  std::vector<int> missing;
  for (std::size_t i = 0; i < collecting.participants.size(); ++i) {
    const int rank = collecting.participants[i];
    if (rank < 0 || collecting.blobs.contains(rank) || !may_contribute(key, rank)) continue;
    missing.push_back(static_cast<int>(i));
  }
  return missing;
}

int Agreement::absent_in(const GatherKey& key, const Collecting& collecting) const {
  const auto found = std::ranges::find_if(collecting.participants, [&](int rank) {
    return rank >= 0 && !collecting.blobs.contains(rank) && !may_contribute(key, rank);
  });
  if (found == collecting.participants.end()) return -1;
  return static_cast<int>(found - collecting.participants.begin());
}

// Why an agreement that needs all fails. A dead participant is named rather than one that released
// the communicator, for the release mostly follows from the death.
Error Agreement::cause_of_absence(int place, const std::vector<int>& participants) const {
  const auto has_died = [this](int rank) { return context_.membership.is_dead(rank); };
  if (!has_died(participants[static_cast<std::size_t>(place)])) {
    const auto dead = std::ranges::find_if(participants, has_died);
    if (dead != participants.end()) place = static_cast<int>(dead - participants.begin());
  }
  const std::string known =
      context_.membership.cause_of(participants[static_cast<std::size_t>(place)]);
  return {Code::remote, fmt::format("rank {}: {}", place, known.empty() ? "it has left" : known),
          place};
}

void Agreement::decide(GatherKey key, Collecting& collecting) {
  if (collecting.need == GatherNeed::all) {
    if (const int absent = absent_in(key, collecting); absent >= 0) {
      return conclude(key, cause_of_absence(absent, collecting.participants), {});
    }
    if (const Error cause = revocation_.cause_of(key.comm)) return conclude(key, cause, {});
  }
  const std::vector<int> missing = missing_in(key, collecting);
  if (missing.empty()) return conclude(key, {}, collecting.blobs);
  tell_missing(key, collecting, missing);
  const double timeout_s = context_.options.timeout_s;
  if (timeout_s == 0 || context_.since(collecting.since_ns) < timeout_s) return;
  conclude(key,
           Error(Code::remote,
                 fmt::format("{} did not take part within {} s", list_of(missing), timeout_s),
                 missing.front()),
           {});
}

void Agreement::tell_missing(const GatherKey& key, Collecting& collecting,
                             const std::vector<int>& missing) {
  if (context_.since(collecting.since_ns) + missing_lead_s < context_.options.warn_s) return;
  if (missing == collecting.missing || context_.now_ns - collecting.told_ns < missing_again_ns) {
    return;
  }
  collecting.missing = missing;
  collecting.told_ns = context_.now_ns;
  Packer packer = message(MessageKind::missing);
  pack(packer, key);
  const std::string whole = packer.numbers(missing).take();
  Unpacker in = body_of(whole);
  hear_missing(in, whole);
}

void Agreement::conclude(const GatherKey& key, const Error& error,
                         const std::map<int, std::string>& blobs) {
  const std::string whole =
      result_message(key, {error, context_.membership.gone_for_good(), blobs});
  Unpacker in = body_of(whole);
  hear_result(in, whole, -1);
}

// --- communicators ----------------------------------------------------------------------------

void Agreement::remove(CommKey comm) {
  std::erase_if(pending_, [comm](const auto& entry) { return entry.first.comm == comm; });
}

void Agreement::forget(CommKey comm) {
  results_.forget(comm);
  std::erase_if(collecting_, [comm](const auto& entry) { return entry.first.comm == comm; });
}

void Agreement::add_known(std::set<CommKey>& known) const {
  for (const auto& [key, pending] : pending_) known.insert(key.comm);
  for (const auto& [key, collecting] : collecting_) known.insert(key.comm);
}

}  // namespace pith
